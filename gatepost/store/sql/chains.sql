-- name: chain
SELECT number, mac, grown, size, edge, linked, proof FROM chains WHERE account = :account
-- name: insert_chain
INSERT INTO chains (account, number, mac, grown, size, edge, linked, proof)
  VALUES (:account, :number, :mac, :grown, :size, :edge, :linked, :proof) ON CONFLICT DO NOTHING RETURNING 1
-- name: move_chain
UPDATE chains SET number = :number, mac = :mac, grown = :grown, size = :size, edge = :edge, linked = :linked,
    proof = :proof
  WHERE account = :account AND proof = :before RETURNING 1
-- name: chains_behind
SELECT account FROM chains WHERE grown < number ORDER BY account LIMIT :limit
-- name: accounts_without_chain
SELECT a.id FROM accounts a WHERE NOT EXISTS (SELECT 1 FROM chains c WHERE c.account = a.id) ORDER BY a.id
-- name: chains_without_account
SELECT c.account FROM chains c WHERE NOT EXISTS (SELECT 1 FROM accounts a WHERE a.id = c.account) ORDER BY c.account
-- name: any_chain
SELECT 1 FROM chains LIMIT 1
-- name: insert_tree_seal
INSERT INTO tree_seals (account, number, first) VALUES (:account, :number, :first)
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
-- name: checkpoint
SELECT number, size, note, entry, proof FROM checkpoints WHERE account = :account
-- name: checkpoints_after
SELECT account, size, note FROM checkpoints WHERE account > :after ORDER BY account LIMIT :limit
-- name: put_checkpoints
/*given: account bytea, number bigint, size bigint, note text, entry bytea, proof bytea */
INSERT INTO checkpoints (account, number, size, note, entry, proof)
  SELECT account, number, size, note, entry, proof FROM given WHERE true
  ON CONFLICT (account) DO UPDATE SET number = excluded.number, size = excluded.size, note = excluded.note,
    entry = excluded.entry, proof = excluded.proof
-- name: chains_to_record
SELECT c.account, c.number, c.mac, c.grown, c.size, c.edge, c.linked, c.proof,
    p.number, p.size, p.note, p.entry, p.proof
  FROM chains c LEFT JOIN checkpoints p ON p.account = c.account
  WHERE c.account > :after ORDER BY c.account LIMIT :limit
-- name: seal_macs_given
/*given: account bytea, number bigint */
SELECT s.account, s.number, s.mac FROM given JOIN seals s ON s.account = given.account AND s.number = given.number
-- name: anchors_given
/*given: account bytea */
SELECT a.account, a.number, a.mac, a.proof FROM given JOIN anchors a ON a.account = given.account
-- name: first_seal_since
SELECT number FROM seals WHERE account = :account AND at >= :since ORDER BY number LIMIT 1
-- name: marks
SELECT keep_days, id FROM prunings WHERE account = :account
-- name: accounts_given
/*given: account bytea */
SELECT a.id FROM given JOIN accounts a ON a.id = given.account
