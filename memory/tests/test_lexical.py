"""The lexical retriever: scores that equal the formula, statistics that are the person's alone, and no query that breaks it."""

import re
from collections import Counter
from math import log
from random import Random

import pytest
from django.db import connection

from core.isolation.acting import acting_as
from intake.tests.factories import a_person, a_turn
from memory.index import terms
from memory.index.scoring import score
from memory.index.segments import flush, mark_lost, purge
from memory.index.sources import SourceKey, Text
from memory.models import Corpus, DeletedText, IndexedText, PendingTerms, TermSegment
from memory.models.documents import Scope
from memory.tests.indexed import stored_postings
from memory.tests.plans import plans
from memory.tests.rows import NOW, a_place
from testing.cluster import cluster_urls

pytestmark = pytest.mark.django_db

# Every word is its own stem and none is a stop word, so that the reference needs no parser.
TURNS = [
    ("cat dog cat", "bird fish bird bird"),
    ("dog", "cat"),
    ("bird bird bird fish", ""),
    ("", "cat cat fish dog dog dog moon moon moon moon moon"),
    ("moon", "moon"),
    ("sun", "sun sun sun"),
]


def search(user, query, limit=100):
    return score(Scope(user, (Corpus.CHAT,)), query=query, limit=limit).hits


def reference(turns, query):
    """BM25F by the formula of Robertson and Zaragoza (2009), section 3.6: {index of the turn: score}."""
    sides = [(Counter(said.split()), Counter(answered.split())) for said, answered in turns]
    averages = [sum(turn[side].total() for turn in sides) / len(sides) for side in (0, 1)]
    scores = {}
    for number, turn in enumerate(sides):
        for word in set(query.split()):
            containing = sum(any(word in side for side in other) for other in sides)
            idf = log(1 + (len(sides) - containing + 0.5) / (containing + 0.5))
            frequency = sum(
                weight * counts[word] / (1 - 0.5 + 0.5 * counts.total() / average)
                for weight, counts, average in zip((2.0, 1.0), turn, averages, strict=True)
            )
            if frequency:
                scores[number] = scores.get(number, 0) + idf * frequency / (1.2 + frequency)
    return scores


@pytest.mark.parametrize("flushed", [0, 3, len(TURNS)])
def test_scores_equal_the_reference_wherever_the_terms_are(flushed):
    alice = a_person()
    saved = [a_turn(alice, said, answered) for said, answered in TURNS[:flushed]]
    assert flush() == flushed
    saved += [a_turn(alice, said, answered) for said, answered in TURNS[flushed:]]
    numbers = {turn.conversation_id: number for number, turn in enumerate(saved)}
    for query in ("cat", "bird fish", "dog moon cat", "cat cat cat sun", "cat dog bird fish moon sun"):
        found = search(alice, query)
        assert {numbers[hit.key[0]]: hit.lexical for hit in found} == pytest.approx(reference(TURNS, query)), query
        assert [hit.lexical for hit in found] == sorted((hit.lexical for hit in found), reverse=True), query


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(2))
def test_scores_equal_the_reference_after_any_order_of_saving_flushing_merging_deleting_and_purging(seed, monkeypatch):
    """Small blocks and segments, so that each of them is cut, merged and left alone."""
    monkeypatch.setattr("memory.index.segments.BLOCK_POSTINGS", 4)
    monkeypatch.setattr("memory.index.segments.BATCH_TEXTS", 5)
    monkeypatch.setattr("memory.index.segments.MOST_TEXTS", 12)
    rng = Random(seed)
    alice, bob = a_person(), a_person("bob@example.com")
    words = [f"{letter}q" for letter in "abcdefghijkl"]
    kept = {}
    for step in range(60):
        said, answered = (" ".join(rng.choices(words, k=rng.randrange(5))) for _ in range(2))
        turn = a_turn(alice, said, answered or "zq")
        kept[turn.conversation_id] = (turn, (said, answered or "zq"))
        if step % 3 == 0:
            a_turn(bob, "aq bq", "zq")
        if rng.random() < 0.3:
            turn, _ = kept.pop(rng.choice(list(kept)))
            # By the application, and in the database itself.
            if step % 2:
                turn.delete()
            else:
                delete_in_the_database(turn)
                mark_lost(turn.user_id)
        if rng.random() < 0.4:
            flush()
        if rng.random() < 0.2:
            purge()
        if step % 10 == 9:
            assert_as_the_reference(alice, kept, rng.sample([*words, "zq"], 4))
    assert TermSegment.objects.filter(user=alice).count() > 1
    purge()
    assert not DeletedText.objects.exists()
    assert len({posting.text for posting in stored_postings(user=alice)}) <= len(kept)
    assert_as_the_reference(alice, kept, words)


def delete_in_the_database(turn):
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM intake_conversation_turns WHERE id = %s", [turn.pk])


def assert_as_the_reference(user, kept, words):
    requested = reference([texts for _, texts in kept.values()], " ".join(words))
    found = {hit.key[0]: hit.lexical for hit in search(user, " ".join(words))}
    assert found == pytest.approx({list(kept)[number]: score for number, score in requested.items()})


def test_the_persons_share_of_a_score_is_that_of_their_words_alone():
    alice = a_person()
    for said, answered in [("cat", ""), ("", "cat"), ("dog", "dog")]:
        a_turn(alice, said, answered)
    said, answered = sorted(search(alice, "cat"), key=lambda hit: -hit.user_lexical)
    assert said.user_lexical == pytest.approx(said.lexical)
    assert answered.user_lexical == 0 < answered.lexical


def test_statistics_are_the_persons_own():
    alice, bob = a_person("alice@example.com"), a_person("bob@example.com")
    a_turn(alice, "cat", "dog")
    alone = search(alice, "cat")
    for _ in range(5):
        a_turn(bob, "cat cat cat", "cat bird fish moon")
    assert search(alice, "cat") == alone


def test_nobody_elses_turns_are_found():
    a_turn(a_person("bob@example.com"), "I adopted a cat")
    assert search(a_person("alice@example.com"), "cat") == []


def test_a_word_in_every_turn_is_worth_about_nothing():
    alice = a_person()
    for number in range(20):
        a_turn(alice, f"Caroline number{number}", "")
    common, rare = search(alice, "caroline", limit=1), search(alice, "number7", limit=1)
    assert common[0].lexical < 0.02 * rare[0].lexical


def test_other_forms_of_a_word_are_found():
    alice = a_person()
    a_turn(alice, "We adopted two kittens", "")
    assert len(search(alice, "adopting a kitten")) == 1


def test_the_simple_configuration_finds_words_as_they_stand(settings):
    settings.TEXT_SEARCH_CONFIG = "simple"
    alice = a_person()
    a_turn(alice, "Die Katzen", "")
    assert len(search(alice, "die")) == 1
    assert search(alice, "Katze") == []


def test_the_limit_holds():
    alice = a_person()
    for _ in range(5):
        a_turn(alice, "cat")
    assert len(search(alice, "cat", limit=3)) == 3


@pytest.mark.parametrize(
    ("message", "query"),
    [
        ("I am 100% sure", "100%"),
        ("The variable a_b holds it", "a_b"),
        ("It's John's bike", "john's"),
        ('She said "hello there"', '"hello"'),
        (r"The folder C:\temp\notes", r"temp\notes"),
        ("drop table students", "'; drop table students; --"),
        ("Miso 🐈 purrs", "🐈 Miso"),
        ("我收养了一只猫", "我收养了一只猫"),
        ("Müller wohnt in Köln", "köln"),
        ("Order 4711-A arrived", "4711"),
        ("cat", "cat & dog | !fish:* <->"),
        ("cat", "cat\0"),
        ("cat", "cat " * 125),
        ("cat", "dog cat " * 1250),
    ],
)
def test_odd_queries_find_what_they_name(message, query):
    alice = a_person()
    a_turn(alice, message, "")
    a_turn(alice, "Something else", "")
    assert len(search(alice, query)) == 1


def test_a_query_without_words_finds_nothing_and_fails_nowhere():
    alice = a_person()
    a_turn(alice, "I adopted a cat", "")
    for query in ("", "   ", "what is it", "🐈", "%", "_", "\\", "'", '"', "\0", "!!!", ":*", "x" * 10_000):
        assert search(alice, query) == [], query


@pytest.mark.django_db(transaction=True)
def test_the_plan_reads_a_block_for_each_term_and_segment_and_nothing_of_anybody_else():
    for person in range(4):
        user = a_person(f"person{person}@example.com")
        numbers = range(150)
        conversation = a_place(user, turns=numbers)
        terms.add_many(
            Text(
                SourceKey(user.pk, Corpus.CHAT, conversation, number),
                NOW,
                f"cat number{number} {'filler ' * (number % 7)}",
                f"dog{number}",
            )
            for number in numbers
        )
    flush()
    with connection.cursor() as cursor:
        for table in ("term_blocks", "term_segments", "pending_terms", "indexed_texts"):
            cursor.execute(f"VACUUM ANALYZE {table}")
    with acting_as(user), plans("WITH stemmed") as explained:
        search(user, "cat number7")
    (plan,) = explained
    # As of the index of vectors, how it reads an index is not asserted.
    for index, column in (("term_blocks_pkey", "segment_id"), ("indexed_texts_pkey", "id")):
        condition = rf"Index Cond: \(\(user_id = {user.pk}\) AND \({column} = "
        assert re.search(rf"Scan [^\n]*(using|on) {index}[^\n]*\n *{condition}", plan), plan
    assert not re.search("Seq Scan on (term_blocks|indexed_texts)", plan), plan


@pytest.mark.skipif(bool(cluster_urls()), reason="Citus refuses what is written for a single server.")
def test_a_cluster_is_sent_the_terms_of_many_texts_in_three_statements_and_has_those_of_a_single_server(
    monkeypatch, django_assert_num_queries
):
    said = [
        ("Did the roofers come?", "They came, and the roof is tight again."),
        ("Wann kommt die Post, und wer ist da?", "Die Post kommt am Montag."),
        ("the", ""),
        ("a long letter " * terms.PIECE_CHARACTERS, 'A "quoted" word, back\\slash {braces}'),
        ("Said twice", "first"),
    ]

    def texts_of(user):
        conversation = a_place(user, turns=range(len(said)))
        keys = [SourceKey(user.pk, Corpus.CHAT, conversation, number) for number in range(len(said))]
        texts = [Text(key, NOW, *both) for key, both in zip(keys, said, strict=True)]
        return [*texts, Text(keys[-1], NOW, "Said twice", "second")]

    alice, bob = a_person(), a_person("bob@example.com")
    terms.add_many(texts_of(alice))
    texts = texts_of(bob)
    with monkeypatch.context() as patch:
        patch.setattr(terms, "is_cluster", lambda connection: True)
        with django_assert_num_queries(3):
            terms.add_many(texts)
    assert stored_terms(bob) == stored_terms(alice)
    assert len(stored_terms(bob)) == len(said)


def stored_terms(user):
    """Of each text, in order: its numbers, and each of its pending terms."""
    kept = []
    for text in IndexedText.objects.filter(user=user).order_by("chunk_index"):
        (pending,) = PendingTerms.objects.filter(user_id=user.pk, text_id=text.pk)
        counted = Counter(zip(pending.lexemes, pending.said, pending.answered, strict=True))
        row = (text.configuration, bytes(text.content_hash), text.said_length, text.answered_length)
        kept.append((*row, pending.said_length, pending.answered_length, counted))
    return kept
