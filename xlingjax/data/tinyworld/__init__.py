"""tinyworld: the embedded multilingual corpus. A small world of about 700 concepts, told in 8 languages, from a seed.

Everything is made from *frames* (frames.py): language-independent clauses such as

    frame("action", "eat", agent=NP("anna"), object=NP("apple", "def", "red"), place=NP("park", "def"))

which every language renders as tagged tokens (tokens.py). Because each token says which slot it expresses, word alignments, part of
speech, entities, answer spans and dictionaries are gold by construction.

    concepts.py  the inventory, taxonomy and selectional restrictions      frames.py    noun phrases, kinds of frame, held-out rule
    world.py     what is true: is-a, opposites, inverses, people's lives   sampling.py  draws sensible frames for a split
    tokens.py    tokens, joining, alignment, entity tags                   check.py     validates one language
    documents.py stories                                                   corpus.py    `write`: the files, their sizes, the manifest
    languages/   one realiser per language        lexicons/   one table per language


HOW TO ADD A LANGUAGE
=====================
Write two files, then run `python -m xlingjax.data.tinyworld.check <lang>` until nothing is missing and every sample reads well.
Read languages/base.py, languages/en.py and lexicons/en.tsv first: English is the worked example.

1. `lexicons/<lang>.tsv` — UTF-8, tab-separated. `@name id lemma column column ...` (separated by spaces) opens a section and names its
columns; then one line per concept. Section names are free; the columns after `id` and `lemma` are yours: give what your grammar needs
and derive the regular rest in code (a blank or `-` cell means "regular"). `lemma` is the citation form a dictionary would print
(nominative singular; infinitive; masculine adjective). Words of a multi-word entry are separated by spaces; each may carry its own
UPOS after a bar: `on|ADP Monday|PROPN`. A second line with the same id is a synonym (used in odd `variant`s): give 10 to 30 per
language, of common words, each with all its columns. Every concept in `concepts()` needs a line:

    category        what the grammar needs from it (per language as applicable)
    person          the name, transliterated (ru: declinable forms or endings; gender is the concept's group, see gender_of)
    city country continent organisation language holiday
                    the name; article, gender, case forms, preposition ("in", "à", "en", "в"/"на") where not regular; languages: the form
                    used after "speaks" (ru adverb "по-немецки" is fine: tag it as you find right)
    role            noun, plural (plural genitive for ru), gender; feminine form (used when the agent of "profession" is a woman);
                    as a subject ("the teacher ate …") a role is masculine in languages that must choose
    animal food object
                    noun: singular, plural, gender, animacy, the case forms not derivable; zh: measure word; mass nouns
                    (concept(id).mass) never take a number or the indefinite article and have no plural
    place           noun + gender + the preposition/case for "at" and for "to" (ru в/на; de in/an/auf + case; fr dans/à/sur; tr, hi, zh as needed)
    class           a hypernym: person_class = person, animal_class = animal, drink_class = drink …; used after "is a"
    kin             noun (brother … colleague); friend, neighbour, colleague take the gender of the theme
    number          two … twelve (gender/case forms as needed before the nouns they count)
    time            the complete adverbial in the past ("am|ADP Montag", "во вторник", "geçen hafta", "在星期一")
    relation        in on under beside behind in_front_of: "X is <relation> Y" (preposition + case, postposition, locative)
    weather         the complete past predicate, affirmative and negated ("rained" / "was cold")
    manner          the adverb
    adjective       agreement forms not derivable; comparative where concept(id).gradable ("bigger", "plus grand", "更大")
    intransitive transitive ditransitive motion
                    verb: infinitive = lemma (used after "want", transitive only) and the PAST third person singular (by gender where it
                    agrees; participle + auxiliary where compound; negated form where it is not regular); government (case or
                    preposition of its object) where not regular. The tense of a narrative past: ate, aß, a mangé, comió, съел(а), yedi, 吃了, ने खाया.
    mental state grammar
                    verb in the PRESENT third person singular (like, love, hate, fear; live, work_for, speak; own, want)

  Ids whose meaning is not plain from the id: light = not heavy; short = not tall; fly = go by plane; drive = go by car; hide_something,
  clean_something, plant_something = the transitive verbs; play_music = play an instrument; play (children, animals) = amuse oneself;
  call = telephone; mouse = the animal; ring = jewellery; watch out for pepper-like ambiguities by reading the concept's group.

2. `languages/<lang>.py` — at most 250 lines, `class Realiser(Language)` with `code`, the punctuation attributes (zh: spaced = False,
full_stop = "。", question_mark = "？"; es: question_open = "¿"; fr: space_before_question_mark = True; hi: full_stop = "।";
tr overrides `capital` for i/İ) and ONE METHOD PER KIND in `frames.KINDS`, named after it: action, event, motion, give, own, locate, state,
property, isa, inside, profession, like, want, count, compare, relation, weather, title, and sequence(frame, first, second). A method takes a
Frame and returns tokens without final stop or initial capital. It must render
  - every form of NP (see frames.NP): name, def, indef, number, generic, pronoun ("he"/"she" as agent or theme);
  - `frame.negated` where KINDS says negatable (never together with a number phrase);
  - `frame.ask`: the slot asked about, for the slots in KINDS[kind].asks: put a question word in place of the phrase and its preposition
    (`self.wh(np, slot)` says which), with the word order of questions; "number" asks "how many OBJECT";
  - `self.is_first(frame, slot)`: that adverbial opens the clause (de: verb second follows). Synonyms come by themselves through
    `self.entry(id)`; `self._variant % 2` may also choose an alternative construction (Anna's sister / the sister of Anna).
Grammar that changes inside a sequence (de: "dann schlief Anna") overrides `sequence` and renders `frame.parts` again there, with
`tokens.prefixed(tokens, "first" | "second")` on each part's tokens. Sequence order: predicate "then" -> FIRST, then SECOND;
"before_that" -> SECOND, but before that FIRST.

KEYS (they make the gold alignments, so use the same ones as English): the head word(s) of the phrase in a slot get the slot's name:
agent object recipient theme ground standard goal place time manner companion. Words around it: slot.det (article), slot.adj, slot.num (number;
zh measure word too: same key), slot.prep (preposition, postposition, zh locative 在…里), slot.case (genitive 's, of, का).
The main verb "verb"; its auxiliary "aux" (did, a, hat); is/was "copula"; not/pas/nicht/не "neg"; want "modal"; "to" before an
infinitive "to"; the relation word "relation"; adjective, kin noun of property / compare / relation "predicate" (its article
"predicate.det"); "than" "than"; weather predicate "verb"; "there" "there"; "first" "then" "but" "before" "and" for the connectives. A word fused
from two (du, im, zum; Turkish case suffixes, negative verbs) takes the key of its more important part: preposition+article ->
slot.prep, suffixed noun -> slot. Fused negation (yemedi) -> "verb". Set `concept` on every token that names a concept (dictionary, entities).
UPOS follows Universal Dependencies for the language: PROPN for names (languages and months follow the language's own UD practice),
AUX for copulas and auxiliaries, PART for не / nicht / not (ADV for pas, no), 了 PART, 的 PART, Chinese measure words NOUN.

Style: plain everyday register; every sentence grammatical, agreement and case included. Where English would need two readings choose the
plainest. Do not translate word for word; 5 to 12 words a sentence.


HOW THE CORPUS IS MADE FROM FRAMES
==================================
Documents (documents.py). A story has a protagonist (its life in `world.person`), a partner, a thing, a place and a day. 3 to 12 frames: an
opening (who, what, where), stative facts that agree with the life, events that keep to the cast and to things already introduced
(indefinite first, definite later, pronoun for the protagonist when named in the sentence before), questions answered at once, sometimes
weather and world facts. A monolingual document is drawn from a stream that includes the language, so no document is the translation of
another; an aligned document is one story rendered twice. Parallel pairs are frames rendered in English and xx, drawn from a stream of their
own. Titles: the "title" frame of the story's cast. corpus.py lists the files and writes them; texts.py makes the running text.

Held out. `frames.is_held_out` hashes the combination kind + predicate + main heads; such combinations occur in no training text (mono,
parallel or labelled), in any language and under any seed, nor do their inverses and contraries. `concepts.HELD_OUT` concepts' words occur in
no training text at all; heldout/novel carries them. World facts (is-a, city in country) are always in training text: they decide NLI.

NLI (nli.py, nli_families.py). The hypothesis is drawn first and gets three premises, one that entails it, one that leaves it open, one that
contradicts it: hypothesis-only classifiers are at chance by construction. Each kind of inference (circumstance, attribute, denial, number,
quality, contrary, comparison, kin, location, home, region, class) makes all three labels, with modifiers added alike. Three times in four
(`nli.PLAIN`) the neutral premise is about something else and the contradicting one denies plainly, which overlap and negation tell; tests
measure both.

POS, NER (tagging.py): tokens' tags. Dictionary: lemma pairs. Alignments: `tokens.align`. Extractive QA (qa.py): a story as context, a
question by `ask` on one of its frames that no other frame could answer, answer = `Sentence.answer(slot)`. Paraphrase (paraphrase.py):
synonym and word-order variants, inverted relations (1); hard negatives with the same words: agent and object, the word of a relation or the
order of events exchanged (0). Retrieval: held-out parallel pairs, no combination twice.
"""
# ruff: noqa: E501

from .corpus import available_languages, write

__all__ = ["available_languages", "write"]
