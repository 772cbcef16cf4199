"""Which languages belong together: the families by which cross-lingual tables are grouped."""

from __future__ import annotations

from collections.abc import Mapping

OTHER = "Other"

_LANGUAGES = {
    "Germanic": "af da de en fo fy got is nb nl nn no sv yi",
    "Romance": "ca es fr gl it la pt ro",
    "Slavic": "be bg cs hr hsb pl ru sk sl sr uk",
    "Baltic": "lt lv",
    "Celtic": "br cy ga gd gv",
    "Hellenic": "el grc",
    "Iranian": "fa kmr ku",
    "Indo-Aryan": "bn gu hi mr ne pa ur",
    "Uralic": "et fi hu kpv krl mdf myv olo sme",
    "Turkic": "az kk ky tr tt ug uz",
    "Semitic": "am ar he mt",
    "Sinitic": "lzh yue zh",
    "Japonic": "ja",
    "Koreanic": "ko",
    "Dravidian": "kn ml ta te",
    "Austronesian": "id jv ms tl",
    "Austroasiatic": "km vi",
    "Kra-Dai": "lo th",
    "Bantu": "sw xh zu",
}
FAMILIES: Mapping[str, str] = {code: family for family, codes in _LANGUAGES.items() for code in codes.split()}
"""The family of a language by its code, as Universal Dependencies write them (Indo-European by branches)."""


def family_of(language: str, own: Mapping[str, str] | None = None) -> str:
    """The family of a language; `own` says it for more languages, or says it otherwise."""
    return {**FAMILIES, **(own or {})}.get(language, OTHER)
