-- name: insert_interaction
INSERT INTO interactions (account, id, client, browser, source, first_visit, pushed, request, expires_at)
  VALUES (:account, :id, :client, :browser, :source, :first_visit, :pushed, :request, :expires_at)
-- name: evict_interactions_of_browser
DELETE FROM interactions WHERE account = :account AND done_at IS NULL AND (account, id) IN (
  SELECT account, id FROM interactions WHERE account = :account AND browser = :browser AND done_at IS NULL
    ORDER BY expires_at DESC, id DESC LIMIT 200 OFFSET :keep) RETURNING 1
-- name: evict_interactions
DELETE FROM interactions WHERE account = :account AND done_at IS NULL AND (account, id) IN (
  SELECT account, id FROM interactions WHERE account = :account AND client = :client AND source = :source
    AND first_visit = :first_visit AND done_at IS NULL
    ORDER BY expires_at DESC, id DESC LIMIT 200 OFFSET :keep) RETURNING 1
-- name: finish_interaction
UPDATE interactions SET done_at = :at WHERE account = :account AND id = :id AND done_at IS NULL RETURNING 1
-- name: delete_all_pushed
DELETE FROM pushed
-- name: delete_all_interactions
DELETE FROM interactions
-- name: interaction
SELECT client, browser, pushed, request, expires_at, done_at FROM interactions WHERE account = :account AND id = :id
