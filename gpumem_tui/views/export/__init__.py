"""A recording in other people's formats: NDJSON and CSV, Chrome and Perfetto traces, Prometheus.

Every format has raw bytes and says SIMULATED or RECORDED. A missing reading is null, an
empty field with its reason, or not there: never a zero.
"""
