"""The ledger: entries with the table of their types, the chain of seals, checkpoints, proofs and the outbox."""
