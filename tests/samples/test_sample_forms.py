"""Forms that a rule easily gets wrong, each as a grammar book gives it."""

import pytest

from residuum.samples import english, german, swahili_forms, turkish_forms


@pytest.mark.parametrize(
    ("base", "third", "participle"),
    [
        ("go", "goes", "going"),
        ("cry", "cries", "crying"),
        ("play", "plays", "playing"),
        ("catch", "catches", "catching"),
        ("run", "runs", "running"),
        ("see", "sees", "seeing"),
        ("forget", "forgets", "forgetting"),
        ("open", "opens", "opening"),
        ("travel", "travels", "travelling"),
        ("draw", "draws", "drawing"),
    ],
)
def test_english_verbs_are_spelled_right(base, third, participle):
    forms = english.verb_forms(base)
    assert (forms.third, forms.participle) == (third, participle)


def test_english_articles_follow_the_sound():
    assert [english.indefinite_article(word) for word in ("old", "honest", "horse")] == ["an", "an", "a"]


@pytest.mark.parametrize(
    ("key", "case", "number", "form"),
    [
        ("student", "Acc", "sg", "Studenten"),
        ("student", "Nom", "sg", "Student"),
        ("neighbour", "Gen", "sg", "Nachbarn"),
        ("child", "Dat", "pl", "Kindern"),
        ("garden", "Dat", "pl", "Gärten"),
        ("car", "Dat", "pl", "Autos"),
        ("bus", "Gen", "sg", "Busses"),
        ("woman", "Gen", "sg", "Frau"),
    ],
)
def test_german_nouns_decline(key, case, number, form):
    assert german.noun_forms(key).forms[case, number] == form


@pytest.mark.parametrize(
    ("key", "first", "third", "past_plural"),
    [
        ("read", "lese", "liest", "lasen"),
        ("smile", "lächle", "lächelt", "lächelten"),
        ("feed", "füttere", "füttert", "fütterten"),
        ("shout", "schreie", "schreit", "schrien"),
        ("work", "arbeite", "arbeitet", "arbeiteten"),
        ("invite", "lade", "lädt", "luden"),
    ],
)
def test_german_verbs_conjugate(key, first, third, past_plural):
    forms = german.verb_forms(key)
    assert (forms.present["1Sing"], forms.present["3Sing"], forms.past["Plur"]) == (first, third, past_plural)


def test_german_adjectives_lose_an_e_before_endings():
    assert german.adjective_form("expensive", "e") == "teure"
    assert german.adjective_form("dark", "en") == "dunklen"
    assert german.adjective_form("tired", "er") == "müder"


@pytest.mark.parametrize(
    ("key", "case", "possessed", "form"),
    [
        ("book", "Acc", False, "kitabı"),
        ("book", "Loc", False, "kitapta"),
        ("book", "Acc", True, "kitabını"),
        ("child", "Dat", False, "çocuğa"),
        ("city", "Acc", False, "şehri"),
        ("city", "Abl", False, "şehirden"),
        ("clock", "Dat", False, "saate"),
        ("water", "Gen", False, "suyun"),
        ("water", "Nom", True, "suyu"),
        ("driver", "Ins", False, "şoförle"),
        ("neighbour", "Nom", True, "komşusu"),
        ("house", "Loc", True, "evinde"),
        ("coat", "Acc", False, "paltoyu"),
    ],
)
def test_turkish_nouns_decline(key, case, possessed, form):
    assert turkish_forms.noun_form(key, "sg", case, possessed) == form


@pytest.mark.parametrize(
    ("name", "case", "form"),
    [
        ("Ali", "Acc", "Ali'yi"),
        ("Ayşe", "Gen", "Ayşe'nin"),
        ("Ankara", "Loc", "Ankara'da"),
        ("Paris", "Abl", "Paris'ten"),
        ("İzmir", "Dat", "İzmir'e"),
        ("Zeynep", "Abl", "Zeynep'ten"),
        ("Mısır", "Acc", "Mısır'ı"),
        ("Otieno", "Ins", "Otieno'yla"),
    ],
)
def test_turkish_names_take_suffixes_after_an_apostrophe(name, case, form):
    assert turkish_forms.name_form(name, case) == form


@pytest.mark.parametrize(
    ("key", "tense", "negated", "agreement", "form"),
    [
        ("go", "past", False, "3Sing", "gitti"),
        ("go", "present", False, "1Sing", "gidiyorum"),
        ("go", "future", False, "1Plur", "gideceğiz"),
        ("eat", "present", False, "3Sing", "yiyor"),
        ("eat", "future", False, "3Sing", "yiyecek"),
        ("eat", "future", True, "3Sing", "yemeyecek"),
        ("wait_for", "present", False, "3Plur", "bekliyorlar"),
        ("play", "present", False, "3Sing", "oynuyor"),
        ("see", "present", True, "3Sing", "görmüyor"),
        ("read", "past", True, "1Sing", "okumadım"),
        ("push", "present", False, "3Sing", "itiyor"),
        ("know", "past", False, "3Sing", "tanıyordu"),
        ("know", "past", True, "1Plur", "tanımıyorduk"),
        ("love", "past", False, "3Plur", "seviyorlardı"),
        ("hate", "past", False, "1Sing", "ediyordum"),
    ],
)
def test_turkish_verbs_conjugate(key, tense, negated, agreement, form):
    assert turkish_forms.finite_form(key, tense, negated, agreement) == form


def test_turkish_participles():
    assert turkish_forms.subject_participle("eat", False) == "yiyen"
    assert turkish_forms.subject_participle("go", False) == "giden"
    assert turkish_forms.subject_participle("read", True) == "okumayan"
    assert turkish_forms.object_participle("see", False, "3Sing") == "gördüğü"
    assert turkish_forms.object_participle("buy", True, "1Plur") == "almadığımız"


def test_turkish_copulas_and_capitals():
    assert turkish_forms.copula_suffix("hasta", "past", "3Sing") == "ydı"
    assert turkish_forms.copula_suffix("genç", "past", "3Sing") == "ti"
    assert turkish_forms.copula_suffix("üzgün", "present", "1Sing") == "üm"
    assert turkish_forms.capital("iki") == "İ"
    assert turkish_forms.capital("ırmak") == "I"


@pytest.mark.parametrize(
    ("stem", "forms"),
    [
        ("kubwa", "mkubwa wakubwa mkubwa mikubwa kubwa makubwa kikubwa vikubwa kubwa kubwa"),
        ("dogo", "mdogo wadogo mdogo midogo dogo madogo kidogo vidogo ndogo ndogo"),
        ("refu", "mrefu warefu mrefu mirefu refu marefu kirefu virefu ndefu ndefu"),
        ("pya", "mpya wapya mpya mipya jipya mapya kipya vipya mpya mpya"),
        ("ekundu", "mwekundu wekundu mwekundu myekundu jekundu mekundu chekundu vyekundu nyekundu nyekundu"),
    ],
)
def test_swahili_adjectives_have_the_concords_of_the_classes(stem, forms):
    assert [swahili_forms.adjective_form(stem, number) for number in range(1, 11)] == forms.split()


@pytest.mark.parametrize(
    ("key", "tense", "negated", "subject", "object_", "form"),
    [
        ("buy", "past", False, 1, None, "alinunua"),
        ("buy", "past", True, 1, None, "hakununua"),
        ("buy", "present", True, "i", None, "sinunui"),
        ("buy", "future", True, "we", None, "hatutanunua"),
        ("eat", "present", False, 2, None, "wanakula"),
        ("eat", "present", True, 1, None, "hali"),
        ("eat", "past", True, 2, None, "hawakula"),
        ("come", "future", False, 1, None, "atakuja"),
        ("see", "past", False, "i", 1, "nilimwona"),
        ("sell", "past", False, 1, 1, "alimuuza"),
        ("buy", "past", False, 1, 7, "alikinunua"),
        ("forget", "present", True, 1, None, "hasahau"),
        ("begin", "past", False, 9, None, "ilianza"),
    ],
)
def test_swahili_verbs_are_built_of_their_prefixes(key, tense, negated, subject, object_, form):
    verb = swahili_forms.verb_stem(key)
    assert swahili_forms.finite_form(verb, tense, negated, subject, object_) == form


def test_swahili_infinitives_and_copulas():
    assert swahili_forms.infinitive(swahili_forms.verb_stem("go"), None) == "kwenda"
    assert swahili_forms.infinitive(swahili_forms.verb_stem("call"), 1) == "kumwita"
    assert swahili_forms.located_form(1) == "yuko"
    assert swahili_forms.not_located_form(7) == "hakiko"
    assert swahili_forms.without_form("i") == "sina"
