WITH unpacked AS MATERIALIZED (
    SELECT id, said_at, vector
      FROM embeddings
     WHERE user_id = %(user_id)s AND corpus = %(corpus)s AND model_id = %(model_id)s AND is_further = %(is_further)s
       AND vector IS NOT NULL AND block_id IS NULL
     ORDER BY id
       FOR NO KEY UPDATE SKIP LOCKED
), numbered AS (
    SELECT *, row_number() OVER (ORDER BY id) - 1 AS place FROM unpacked
), full_block AS (
    SELECT array_agg(id ORDER BY place) AS p, array_agg(said_at ORDER BY place) AS t,
           array_agg(vector ORDER BY place) AS v
      FROM numbered
     GROUP BY place / %(slots)s
    HAVING count(*) = %(slots)s
     ORDER BY place / %(slots)s
), packed AS (
    INSERT INTO embedding_blocks
           (user_id, corpus, model_id, is_further, p0, p1, p2, p3, p4, p5, p6, p7, p8, p9,
            t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, v0, v1, v2, v3, v4, v5, v6, v7, v8, v9)
    SELECT %(user_id)s, %(corpus)s, %(model_id)s, %(is_further)s,
           p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10],
           t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10],
           v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10]
      FROM full_block
    RETURNING id, ARRAY[p0, p1, p2, p3, p4, p5, p6, p7, p8, p9] AS passages
)
UPDATE embeddings SET block_id = passage.block_id
  FROM (SELECT packed.id AS block_id, unnest(passages) AS id FROM packed) AS passage
 WHERE embeddings.id = passage.id
