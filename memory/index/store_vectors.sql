-- Stores vectors and packs them with earlier unpacked ones, so that each row is written once. A row with a changed text
-- stays pending, a row that has a vector keeps it, and rows that another transaction is deleting or packing are left to
-- it.
WITH made AS MATERIALIZED (
    SELECT id, content_hash, text::halfvec AS vector
      FROM unnest(%(ids)s::bigint[], %(hashes)s::bytea[], %(vectors)s::text[]) AS each(id, content_hash, text)
), stored AS MATERIALIZED (
    SELECT id, user_id, corpus, model_id, is_further, said_at, made.vector
      FROM made JOIN embeddings AS row USING (id, content_hash)
     WHERE row.vector IS NULL
     ORDER BY id
       FOR NO KEY UPDATE OF row
), unpacked AS MATERIALIZED (
    SELECT id, user_id, corpus, model_id, is_further, said_at, vector
      FROM (SELECT DISTINCT user_id, corpus, model_id, is_further FROM stored) AS touched
      JOIN embeddings AS row USING (user_id, corpus, model_id, is_further)
     WHERE vector IS NOT NULL AND block_id IS NULL
     ORDER BY id
       FOR NO KEY UPDATE OF row SKIP LOCKED
), numbered AS MATERIALIZED (
    SELECT *, row_number() OVER (PARTITION BY user_id, corpus, model_id, is_further ORDER BY id) - 1 AS place
      FROM (SELECT * FROM stored UNION ALL SELECT * FROM unpacked) AS each
), full_block AS (
    SELECT user_id, corpus, model_id, is_further, array_agg(id ORDER BY place) AS p,
           array_agg(said_at ORDER BY place) AS t, array_agg(vector ORDER BY place) AS v
      FROM numbered
     GROUP BY user_id, corpus, model_id, is_further, place / %(slots)s
    HAVING count(*) = %(slots)s
     ORDER BY user_id, corpus, model_id, is_further, place / %(slots)s
), packed AS (
    INSERT INTO embedding_blocks
           (user_id, corpus, model_id, is_further, p0, p1, p2, p3, p4, p5, p6, p7, p8, p9,
            t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, v0, v1, v2, v3, v4, v5, v6, v7, v8, v9)
    SELECT user_id, corpus, model_id, is_further, p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10],
           t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10],
           v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10]
      FROM full_block
    RETURNING id, ARRAY[p0, p1, p2, p3, p4, p5, p6, p7, p8, p9] AS passages
), passage AS (
    SELECT packed.id AS block_id, unnest(passages) AS id FROM packed
), written AS (
    UPDATE embeddings AS row
       SET vector = stored.vector, embedded_at = %(now)s, last_error = '', block_id = passage.block_id
      FROM stored LEFT JOIN passage USING (id)
     WHERE row.id = stored.id
)
UPDATE embeddings SET block_id = passage.block_id FROM passage JOIN unpacked USING (id) WHERE embeddings.id = passage.id
