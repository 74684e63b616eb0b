-- name: insert_server_key
INSERT INTO server_keys (name, wrapped) VALUES (:name, :wrapped) ON CONFLICT DO NOTHING
-- name: update_server_key
UPDATE server_keys SET wrapped = :wrapped WHERE name = :name
-- name: server_keys
SELECT name, wrapped FROM server_keys ORDER BY name
