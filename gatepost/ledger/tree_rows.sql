-- name: insert_tree_seals
/*given: account bytea, number bigint, first bigint */
INSERT INTO tree_seals (account, number, first) SELECT account, number, first FROM given WHERE true
  ON CONFLICT (account, number) DO UPDATE SET first = excluded.first
-- name: tree_seal
SELECT first FROM tree_seals WHERE account = :account AND number = :number
-- name: tree_seal_with
SELECT number, first FROM tree_seals WHERE account = :account AND first <= :leaf ORDER BY first DESC LIMIT 1
-- name: delete_tree_seals
DELETE FROM tree_seals WHERE account = :account AND number <= :number
-- name: insert_tree_nodes
/*given: account bytea, level integer, position bigint, hash bytea */
INSERT INTO tree_nodes (account, level, position, hash) SELECT account, level, position, hash FROM given WHERE true
  ON CONFLICT (account, level, position) DO UPDATE SET hash = excluded.hash
-- name: tree_node
SELECT hash FROM tree_nodes WHERE account = :account AND level = :level AND position = :position
-- name: tree_nodes_given
/*given: account bytea, level integer, position bigint */
SELECT n.level, n.position, n.hash FROM given JOIN tree_nodes n
  ON n.account = given.account AND n.level = given.level AND n.position = given.position
-- name: pruned_tree
SELECT number, size, edge, proof FROM pruned_trees WHERE account = :account
-- name: put_pruned_tree
INSERT INTO pruned_trees (account, number, size, edge, proof) VALUES (:account, :number, :size, :edge, :proof)
  ON CONFLICT (account) DO UPDATE SET number = excluded.number, size = excluded.size, edge = excluded.edge,
    proof = excluded.proof
