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
SELECT account FROM chains WHERE grown < number /*reachable: account */ ORDER BY account LIMIT :limit
-- name: accounts_without_chain
SELECT a.id FROM accounts a WHERE NOT EXISTS (SELECT 1 FROM chains c WHERE c.account = a.id) ORDER BY a.id
-- name: accounts_without_chain (citus)
SELECT id FROM accounts WHERE id NOT IN (SELECT account FROM chains) ORDER BY id
-- name: chains_without_account
SELECT c.account FROM chains c WHERE NOT EXISTS (SELECT 1 FROM accounts a WHERE a.id = c.account) ORDER BY c.account
-- name: chains_without_account (citus)
SELECT account FROM chains WHERE account NOT IN (SELECT id FROM accounts) ORDER BY account
-- name: any_chain
SELECT 1 FROM chains LIMIT 1
