"""Pure arithmetic over records: no I/O, no clock, no thread, no torch. Same input, same answer."""
