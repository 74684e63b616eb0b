-- name: forget_pushed
DELETE FROM pushed WHERE (account, id) IN
  (SELECT account, id FROM pushed WHERE expires_at < :before /*reachable: account */ ORDER BY expires_at LIMIT 200)
  /*reachable: account */ RETURNING 1
-- name: forget_interactions
DELETE FROM interactions WHERE (account, id) IN
  (SELECT account, id FROM interactions WHERE expires_at < :before /*reachable: account */ ORDER BY expires_at LIMIT 200)
  /*reachable: account */ RETURNING 1
-- name: forget_consents
DELETE FROM consents WHERE (account, id) IN
  (SELECT account, id FROM consents WHERE expires_at < :before /*reachable: account */ ORDER BY expires_at LIMIT 200)
  /*reachable: account */ RETURNING 1
-- name: forget_codes
DELETE FROM codes WHERE (account, id) IN
  (SELECT account, id FROM codes WHERE expires_at < :before /*reachable: account */ ORDER BY expires_at LIMIT 200)
  /*reachable: account */ RETURNING 1
-- name: forget_families
DELETE FROM families WHERE (account, id) IN
  (SELECT account, id FROM families WHERE ends_at < :before /*reachable: account */ ORDER BY ends_at LIMIT 200)
  /*reachable: account */ RETURNING 1
-- name: forget_revoked
DELETE FROM revoked WHERE (account, id) IN
  (SELECT account, id FROM revoked WHERE expires_at < :before /*reachable: account */ ORDER BY expires_at LIMIT 200)
  /*reachable: account */ RETURNING 1
-- name: forget_assertions
DELETE FROM assertions WHERE (client, id) IN
  (SELECT client, id FROM assertions WHERE expires_at < :before ORDER BY expires_at LIMIT 200) RETURNING 1
