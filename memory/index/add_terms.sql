-- A row if the text was new. A term of both sides, or of several pieces, is stored once for each: merging them takes
-- longer than everything else here.
WITH term AS (
    SELECT coalesce(array_agg(lexeme), '{}') AS lexemes,
           coalesce(array_agg(said), '{}') AS said, coalesce(sum(said), 0) AS said_length,
           coalesce(array_agg(answered), '{}') AS answered, coalesce(sum(answered), 0) AS answered_length
      FROM (SELECT lexeme, cardinality(positions) AS said, 0 AS answered
              FROM unnest(%(said)s::text[]) AS piece, unnest(to_tsvector(%(configuration)s::text::regconfig, piece))
            UNION ALL
            SELECT lexeme, 0, cardinality(positions)
              FROM unnest(%(answered)s::text[]) AS piece,
                   unnest(to_tsvector(%(configuration)s::text::regconfig, piece))) AS side
     WHERE length(lexeme) <= %(max_lexeme)s
), indexed AS (
    INSERT INTO indexed_texts
           (user_id, corpus, source_id, chunk_index, said_at, configuration, content_hash, signature,
            said_length, answered_length)
    SELECT %(user_id)s, %(corpus)s, %(source_id)s, %(chunk_index)s, %(said_at)s, %(configuration)s, %(text_hash)s,
           %(signature)s::varbit, said_length, answered_length
      FROM term
        ON CONFLICT DO NOTHING
    RETURNING *
), pending AS (
    INSERT INTO pending_terms (text_id, user_id, corpus, said_length, answered_length, lexemes, said, answered)
    SELECT id, user_id, corpus, indexed.said_length, indexed.answered_length, lexemes, said, answered
      FROM indexed
     CROSS JOIN term
)
SELECT count(*) FROM indexed
