-- name: count_replays
SELECT count(*), coalesce(sum(examined), 0), coalesce(sum(made), 0) FROM replays WHERE state = 'running' /*reachable: account */
-- name: insert_replay
INSERT INTO replays (account, id, subscription, state, position, examined, made, document)
  VALUES (:account, :id, :subscription, 'running', :position, 0, 0, :document)
-- name: running_replays
SELECT account, id
  FROM (
    SELECT account, id, row_number() OVER (PARTITION BY account ORDER BY id) AS turn
      FROM replays WHERE state = 'running' /*reachable: account */
  ) AS numbered
  WHERE turn <= 10
-- name: lock_replay
SELECT account, id, subscription, state, position, examined, made, document FROM replays
  WHERE account = :account AND id = :id AND state = 'running' /*postgres: FOR UPDATE SKIP LOCKED */
-- name: last_replay
SELECT account, id, subscription, state, position, examined, made, document FROM replays
  WHERE account = :account AND subscription = :subscription ORDER BY id DESC LIMIT 1
-- name: move_replay
UPDATE replays SET state = :state, position = :position, examined = :examined, made = :made
  WHERE account = :account AND id = :id
