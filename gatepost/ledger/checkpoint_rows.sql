-- name: checkpoints_given
/*given: account bytea */
SELECT c.account, c.number, c.size, c.note, c.entry, c.proof FROM given JOIN checkpoints c ON c.account = given.account
-- name: checkpoints_after
SELECT account, size, note FROM checkpoints WHERE account > :after /*reachable: account */ ORDER BY account LIMIT :limit
-- name: put_checkpoints
/*given: account bytea, number bigint, size bigint, note text, entry bytea, proof bytea */
INSERT INTO checkpoints (account, number, size, note, entry, proof)
  SELECT account, number, size, note, entry, proof FROM given WHERE true
  ON CONFLICT (account) DO UPDATE SET number = excluded.number, size = excluded.size, note = excluded.note,
    entry = excluded.entry, proof = excluded.proof
-- name: chains_to_record
SELECT c.account, c.number, c.mac, c.grown, c.size, c.edge, c.linked, c.proof,
    p.number, p.size, p.note, p.entry, p.proof
  FROM chains c LEFT JOIN checkpoints p ON p.account = c.account /*reachable: p.account */
  WHERE c.account > :after /*reachable: c.account */ ORDER BY c.account LIMIT :limit
