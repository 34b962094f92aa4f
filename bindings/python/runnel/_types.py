"""Empty: the types of options and records are for type checkers alone, in _types.pyi."""
