"""Units of work, one file per noun: load rows, ask a pure decision, write, and record the fact in the ledger.

Each is a plain function of a transaction, safe to run again. A refusal is a value: it commits like anything else.
"""
