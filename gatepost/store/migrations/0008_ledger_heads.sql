-- The head and the Merkle tree of each account's ledger, under a proof that only the service can make.

CREATE TABLE chains (
  account bytea NOT NULL PRIMARY KEY,
  number bigint NOT NULL,  -- of the last seal
  mac bytea NOT NULL,  -- of the last seal
  grown bigint NOT NULL,  -- the last seal whose entries are in the tree
  size bigint NOT NULL,  -- leaves of the tree
  edge bytea NOT NULL,  -- roots of its complete subtrees, largest first
  linked bigint NOT NULL,  -- the operator's last seal that a seal of this chain names
  proof bytea NOT NULL
);
CREATE INDEX chains_behind ON chains (account) WHERE grown < number;

CREATE TABLE tree_seals (  -- where the entries of a seal are in the tree
  account bytea NOT NULL,
  number bigint NOT NULL,
  first bigint NOT NULL,
  PRIMARY KEY (account, number)
);
CREATE INDEX tree_seals_by_first ON tree_seals (account, first);

CREATE TABLE tree_nodes (  -- complete subtrees of 256 leaves and more
  account bytea NOT NULL,
  level integer NOT NULL,
  position bigint NOT NULL,
  hash bytea NOT NULL,
  PRIMARY KEY (account, level, position)
);

CREATE TABLE pruned_trees (  -- the tree as it was at the anchor
  account bytea NOT NULL PRIMARY KEY,
  number bigint NOT NULL,
  size bigint NOT NULL,
  edge bytea NOT NULL,
  proof bytea NOT NULL
);

CREATE TABLE checkpoints (  -- the last head that was recorded in the operator's ledger, and its signed checkpoint
  account bytea NOT NULL PRIMARY KEY,
  number bigint NOT NULL,
  size bigint NOT NULL,
  note text NOT NULL,
  entry bytea NOT NULL,  -- of the operator's ledger
  proof bytea NOT NULL
);
