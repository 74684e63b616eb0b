-- The outbox by row: a role may be restricted to certain accounts (`gatepost outbox grant`). The policy that is made
-- here lets everybody do what their privileges allow, as before; that of a role restricts it. The key hides from other
-- roles of the database which endpoints a notification is about: anybody may LISTEN.

/*postgres: ALTER TABLE gatepost_outbox ENABLE ROW LEVEL SECURITY; */
/*postgres: CREATE POLICY gatepost_any_account ON gatepost_outbox USING (true) WITH CHECK (true); */
/*postgres: CREATE TABLE gatepost_notification_key (key bytea NOT NULL); */
/*postgres: INSERT INTO gatepost_notification_key (key) VALUES (sha256((gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text)::bytea)); */
