"""What people see: the live view, plain text and JSON, all drawn from one ``analysis.state.RunState``.

Imports analysis, records, units and errors; never a source, a journal or a session.
Textual is imported under ``views.tui`` only, and only once a view is opened.
"""
