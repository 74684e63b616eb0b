-- Whether a client's ID tokens hold the claims that its scopes release. A column rather than a member of the document:
-- the default makes it true for every client that exists, and for those that the previous release still defines during
-- an upgrade; and the previous release, which rewrites whole documents, leaves it alone.
ALTER TABLE clients ADD COLUMN id_token_claims integer NOT NULL DEFAULT 1;
