"""The inventory: every concept of the small world, its category, its group, its hypernym and its other features.

A concept is a language-independent id ("cat", "give", "red"). Each language says how it is expressed (lexicons/<lang>.tsv).
The tables below are the whole truth of the world: is-a, which city lies in which country, antonyms, who can do what to what.
"""

# ruff: noqa: E501 - the tables read best one row per line

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

# category | group | hypernym | ids.  The hypernym is itself a concept (category "class"), or empty.
_NOUNS = """
person | man | | adam anton arthur boris carlos daniel david elias emil felix hassan hugo igor ivan karim leo lucas marco martin max omar oscar pavel peter ravi robert simon victor yusuf zain
person | woman | | alice anna clara diana elena emma eva fatima irina julia laura lena lucia maria marta mei mira nadia nina nora olga paula rosa sara sofia tanya vera yasmin zara lily
role | artist | artist | singer dancer painter writer poet actor musician photographer
role | craft | worker | baker chef tailor mechanic gardener hairdresser butcher
role | service | worker | driver waiter seller librarian firefighter police_officer
role | learned | person_class | teacher doctor nurse lawyer judge engineer scientist journalist dentist programmer translator pharmacist architect
role | outdoor | person_class | farmer sailor soldier hunter fisherman shepherd pilot student
animal | mammal | mammal | cat dog horse cow pig sheep goat mouse rabbit lion tiger bear wolf fox elephant monkey camel deer donkey squirrel giraffe zebra hedgehog
animal | bird | bird | duck hen goose eagle owl parrot pigeon swan crow sparrow penguin
animal | fish | fish | shark salmon carp tuna
animal | insect | insect | bee ant butterfly mosquito beetle
animal | reptile | reptile | snake lizard turtle crocodile
food | fruit | fruit | apple pear orange lemon banana cherry strawberry peach melon plum mango pineapple
food | vegetable | vegetable | potato tomato onion carrot cabbage cucumber pumpkin
food | drink | drink_class | water milk tea coffee juice wine beer lemonade
food | dish | food_class | bread cheese rice soup meat butter honey chocolate cake egg sandwich salad pizza cookie pancake ice_cream
object | tool | tool | hammer saw knife axe shovel needle screwdriver broom ladder drill
object | vehicle | vehicle | car bus train bicycle motorcycle ship boat plane truck tractor taxi tram helicopter
object | clothing | garment | shirt dress skirt coat hat scarf jacket sweater glove shoe sock boot belt
object | furniture | piece_of_furniture | table chair bed sofa shelf wardrobe desk armchair bench stool
object | music | musical_instrument | guitar piano violin drum flute trumpet harp cello
object | container | container | box bag basket bottle cup bowl bucket pot suitcase backpack vase
object | toy | toy | doll ball kite puzzle balloon
object | device | device | phone computer camera radio television clock lamp fridge printer
object | reading | | book letter newspaper magazine map postcard diary
object | thing | | key mirror picture candle umbrella pillow blanket towel flag stone coin ticket wallet gift comb brush pen pencil notebook ring necklace crown
object | flower | flower | rose tulip sunflower
object | tree | tree | oak pine palm birch
place | building | building | school hospital library museum theatre cinema restaurant shop bank station airport factory castle hotel university bakery pharmacy post_office temple
place | room | room | kitchen bedroom bathroom office
place | outdoor | | park market harbour bridge beach forest garden farm square street river lake mountain village island zoo stadium lighthouse
class | | | person_class artist worker animal_class mammal bird fish insect reptile food_class fruit vegetable drink_class tool vehicle garment piece_of_furniture musical_instrument container toy device plant_class flower tree building room
kin | man | | brother father son husband uncle nephew grandfather grandson
kin | woman | | sister mother daughter wife aunt niece grandmother granddaughter
kin | any | | friend neighbour colleague
continent | | | europe asia africa america
organisation | | | red_cross united_nations world_bank unesco unicef nasa interpol greenpeace toyota siemens samsung airbus sony honda ikea nokia
language | | | english german spanish french russian turkish chinese hindi arabic italian japanese greek portuguese polish
holiday | | | christmas easter new_year ramadan diwali halloween carnival nowruz
time | weekday | | monday tuesday wednesday thursday friday saturday sunday
time | month | | january february march april may june july august september october november december
time | season | | spring summer autumn winter
time | daypart | | morning noon afternoon evening night
time | past | | yesterday last_night last_week last_month last_year
number | | | two three four five six seven eight nine ten eleven twelve
relation | | | in on under beside behind in_front_of
weather | | | rain snow cold_weather hot_weather sunny windy foggy cloudy
manner | | | slowly quickly quietly loudly carefully happily sadly secretly
motion | | | go run walk travel return hurry fly drive
ditransitive | | | give show send lend bring offer
state | | | live work_for speak
grammar | | | own want
"""

# The hypernym of a class; what has no line here is a top class.
_CLASS_PARENTS = {
    "artist": "person_class", "worker": "person_class", "mammal": "animal_class", "bird": "animal_class",
    "fish": "animal_class", "insect": "animal_class", "reptile": "animal_class", "fruit": "food_class",
    "vegetable": "food_class", "drink_class": "food_class", "flower": "plant_class", "tree": "plant_class",
}  # fmt: skip

# country : continent : cities
_GEOGRAPHY = """
france : europe : paris lyon
germany : europe : berlin munich
britain : europe : london oxford
spain : europe : madrid barcelona
italy : europe : rome venice milan
russia : europe : moscow kazan
turkey : asia : istanbul ankara
china : asia : beijing shanghai
india : asia : delhi mumbai
japan : asia : tokyo osaka
egypt : africa : cairo
austria : europe : vienna
poland : europe : warsaw
portugal : europe : lisbon porto
greece : europe : athens
czechia : europe : prague
canada : america : toronto
peru : america : lima
cuba : america : havana
kenya : africa : nairobi
morocco : africa : casablanca
vietnam : asia : hanoi
thailand : asia : bangkok
norway : europe : oslo
"""

# intransitive verb : who can do it (groups or categories)
_INTRANSITIVE = """
sleep : person role mammal bird
laugh cry sing dance pray smile study shout sneeze whistle work whisper yawn : person role
wait rest hide : person role mammal bird
swim : person role fish duck swan goose turtle crocodile penguin dog bear
play : person cat dog monkey rabbit fox bear
jump : person role cat dog horse goat rabbit fox monkey deer squirrel tiger lion
fall : person role
"""

# transitive verb : agent : object (ids, groups or categories)
_TRANSITIVE = """
eat : person role : fruit vegetable dish
drink : person role : drink
cook : person role : vegetable rice soup meat egg
cut : person role : fruit vegetable bread cheese cake meat
buy : person role : food tool clothing furniture music container toy device reading thing flower car bicycle boat
sell : person role : food tool clothing furniture music container toy device reading thing flower car bicycle boat
find : person role : tool clothing container toy reading thing mammal bird reptile
lose : person role : clothing toy reading thing knife hammer phone bag suitcase backpack
see : person role : animal vehicle person furniture tree
draw : person role : animal vehicle fruit flower tree person
photograph : person role : animal vehicle flower tree person
read : person role : reading
write : person role : letter book postcard diary
wash : person role : clothing fruit vegetable cup bowl bottle pot car bus dog horse
repair : person role : vehicle device music furniture umbrella
break : person role : device cup bowl bottle vase mirror toy chair pencil
carry : person role : container furniture tool music tree
steal : person role : thing device music bicycle car horse hen
clean_something : person role : furniture container mirror knife fridge lamp
hide_something : person role : thing toy reading chocolate bottle
forget : person role : clothing thing reading phone camera bag
wear : person role : shirt dress skirt coat hat scarf jacket sweater belt ring necklace crown
play_music : person role : music
feed : person role : cat dog horse cow pig sheep goat rabbit lion tiger bear elephant monkey camel donkey bird fish
chase : person role cat dog wolf fox lion tiger bear : mouse rabbit sheep deer hen duck goose pigeon cat squirrel butterfly
catch : person role cat fox wolf bear eagle owl : mouse rabbit fish hen duck butterfly lizard
follow : person role dog : person cow sheep deer elephant duck
hug : person role : person dog cat doll
meet visit call help invite greet : person role : person
plant_something : person role : flower tree potato tomato onion carrot cabbage
celebrate : person role : holiday
"""

# adjective pair (antonyms) : gradable : what it can describe
_ADJECTIVES = """
big small : yes : animal tool vehicle furniture container toy device thing tree fruit vegetable building
new old : no : tool vehicle clothing furniture music container toy device reading building
clean dirty : no : clothing furniture container tool vehicle
heavy light : yes : tool furniture music container device
expensive cheap : yes : clothing vehicle furniture music device toy
beautiful ugly : yes : clothing vehicle music flower vase picture ring
hot cold : no : tea coffee milk water soup
fresh rotten : no : fruit vegetable
full empty : no : container
fast slow : yes : vehicle
tall short : yes : person role
strong weak : yes : person role
rich poor : yes : person role
young old : yes : person role
happy sad : no : person role
healthy sick : no : person role
clever stupid : yes : person role
brave cowardly : yes : person role
polite rude : yes : person role
lazy hardworking : yes : person role
calm nervous : no : person role
dangerous harmless : no : mammal bird reptile shark
wild tame : no : mammal bird
"""
COLOURS = tuple(["red", "blue", "green", "yellow", "black", "white", "brown", "grey", "pink"])
_COLOURABLE = "clothing vehicle furniture container toy flower umbrella pillow blanket towel flag pen pencil notebook"

_MENTAL = """
like love hate : person role : fruit vegetable drink dish animal
fear : person role : animal
"""

# The smallest to the largest; only far-apart animals are compared.
ANIMALS_BY_SIZE = tuple(
    [
        "ant",
        "mosquito",
        "bee",
        "butterfly",
        "beetle",
        "mouse",
        "sparrow",
        "lizard",
        "squirrel",
        "pigeon",
        "hedgehog",
        "parrot",
        "crow",
        "duck",
        "hen",
        "rabbit",
        "owl",
        "cat",
        "goose",
        "fox",
        "swan",
        "penguin",
        "dog",
        "sheep",
        "goat",
        "pig",
        "wolf",
        "deer",
        "donkey",
        "tiger",
        "lion",
        "cow",
        "horse",
        "camel",
        "giraffe",
        "elephant",
    ]
)

# Words that never occur in training text, in any language; a marked part of the test sets uses them.
HELD_OUT = frozenset(
    [
        "hugo",
        "vera",
        "lima",
        "oslo",
        "zebra",
        "swan",
        "beetle",
        "peach",
        "pumpkin",
        "pancake",
        "trumpet",
        "kite",
        "bucket",
        "tram",
        "sweater",
        "necklace",
        "lighthouse",
        "butcher",
        "axe",
    ]
)

_MASS = frozenset(
    ["bread", "cheese", "rice", "soup", "meat", "butter", "honey", "chocolate", "ice_cream"]
)  # drinks are mass too


@dataclass(frozen=True)
class Concept:
    """One concept.

    Attributes:
        id: the name of the concept, unique over all categories.
        category: e.g. "animal"; decides which lexicon columns a language needs.
        group: the subdivision used by selectional restrictions, e.g. "bird"; "" if none. For people "man" / "woman".
        hypernym: id of the class it belongs to (cat -> mammal), the country of a city, the continent of a country; "" if none.
        mass: a noun that has no plural and takes no indefinite article or number (bread, water).
        agents, objects: for verbs, the concept ids allowed as agent and object.
        describes: for adjectives, the concept ids it can describe.
        gradable: for adjectives, whether it has a comparative in the world.
    """

    id: str
    category: str
    group: str = ""
    hypernym: str = ""
    mass: bool = False
    agents: tuple[str, ...] = field(default=(), repr=False)
    objects: tuple[str, ...] = field(default=(), repr=False)
    describes: tuple[str, ...] = field(default=(), repr=False)
    gradable: bool = False


def _rows(table: str, separator: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split(separator)] for line in table.strip().splitlines()]


def _read_tables() -> dict[str, Concept]:
    found: dict[str, Concept] = {}

    def add(concept: Concept) -> None:
        if concept.id in found:
            raise ValueError(f"concept {concept.id!r} is listed twice")
        found[concept.id] = concept

    for category, group, hypernym, ids in _rows(_NOUNS, "|"):
        for id_ in ids.split():
            parent = _CLASS_PARENTS.get(id_, "") if category == "class" else hypernym
            add(Concept(id_, category, group, parent, mass=id_ in _MASS or group == "drink"))
    for country, continent, cities in _rows(_GEOGRAPHY, ":"):
        add(Concept(country, "country", hypernym=continent))
        for city in cities.split():
            add(Concept(city, "city", hypernym=country))

    nouns = [c for c in found.values() if c.category != "class"]

    def select(names: str) -> tuple[str, ...]:
        wanted = set(names.split())
        if unknown := wanted - {name for c in nouns for name in (c.id, c.group, c.category)}:
            raise ValueError(f"no concept, group or category is called {unknown}")
        return tuple(c.id for c in nouns if {c.id, c.group, c.category} & wanted)

    for verbs, agents in _rows(_INTRANSITIVE, ":"):
        for verb in verbs.split():
            add(Concept(verb, "intransitive", agents=select(agents)))
    for category, table in (("transitive", _TRANSITIVE), ("mental", _MENTAL)):
        for verbs, agents, objects in _rows(table, ":"):
            for verb in verbs.split():
                add(Concept(verb, category, agents=select(agents), objects=select(objects)))
    describes: dict[str, tuple[str, ...]] = {}
    gradable: dict[str, bool] = {}
    for pair, graded, described in _rows(_ADJECTIVES, ":"):
        for adjective in pair.split():
            describes[adjective] = describes.get(adjective, ()) + select(described)
            gradable[adjective] = gradable.get(adjective, False) or graded == "yes"
    for colour in COLOURS:
        add(Concept(colour, "adjective", "colour", describes=select(_COLOURABLE)))
    for adjective, ids in describes.items():
        add(Concept(adjective, "adjective", describes=ids, gradable=gradable[adjective]))
    return found


_CONCEPTS = _read_tables()


def concepts() -> dict[str, Concept]:
    """All concepts by id, in a fixed order."""
    return _CONCEPTS


def concept(id_: str) -> Concept:
    return _CONCEPTS[id_]


@cache
def in_category(category: str) -> tuple[str, ...]:
    """Ids of one category, in table order."""
    return tuple(c.id for c in concepts().values() if c.category == category)


def is_human(id_: str) -> bool:
    return concept(id_).category in ("person", "role")


def gender_of(id_: str) -> str:
    """Natural gender: "f" for women and female kin, else "m". (Grammatical gender of nouns is in the lexicons.)"""
    return "f" if concept(id_).group == "woman" else "m"
