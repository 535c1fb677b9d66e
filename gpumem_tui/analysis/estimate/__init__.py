"""What a model needs before anything runs: arithmetic on declared sizes, every line with its formula.

::

    quantities   7B, bf16, 0.5% as exact numbers
    figures      inputs with an origin, lines with a basis
    tensors      what a checkpoint's header declares
    shapes       config.json → layers, KV heads, head dimension
    request      the options, and which belong together
    weights, kvcache, training          lines of bytes
    resolve_cache, resolve_training     options and files → what those lines need
    plan         a request → an Estimate
    sheet        an Estimate as text and as JSON

Refuses: files and devices (:mod:`gpumem_tui.sources.modelfiles` reads, cli prints),
multipliers that stand for what was not counted, verdicts. Standard library only.
"""
