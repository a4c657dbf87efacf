"""Word lists of the office family, and the people, companies and amounts made from them. All are invented."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["AREAS", "GOODS", "PROJECT_WORDS", "ROOMS", "TOPICS", "Company", "Names", "Person", "amount", "slug"]


def _words(text: str) -> tuple[str, ...]:
    """The items of a list written with commas."""
    return tuple(" ".join(item.split()) for item in text.split(","))


FIRST = _words(
    """
    Ada, Adrian, Agnes, Aidan, Alba, Alexei, Amara, Anders, Aneta, Anil, Anouk, Arjun, Astrid, Aylin, Bela, Bianca,
    Birgit, Boris, Bram, Camille, Carlo, Carmen, Chidi, Clara, Cosmo, Dagmar, Daria, Davit, Delia, Diego, Dora,
    Edgar, Eleni, Elif, Emeka, Enzo, Erika, Esther, Fabian, Farah, Felix, Fenna, Fiona, Gaspar, Gita, Greta, Hamid,
    Hanna, Harald, Hedda, Hugo, Ida, Ilias, Imran, Ines, Ingrid, Ivo, Jana, Jarek, Jelena, Joao, Jonas, Judit,
    Kaito, Kalle, Karim, Katja, Kofi, Lara, Leif, Lena, Liam, Lidia, Linus, Lucia, Luka, Magda, Malik, Mara, Marek,
    Mateo, Meera, Milan, Mina, Miro, Nadia, Nils, Nina, Noor, Olga, Omar, Oskar, Otto, Paula, Pavel, Petra, Priya,
    Rafael, Rania, Rosa, Ruben, Sanna, Selma, Silas, Sofia, Stellan, Tamar, Tariq, Tessa, Theo, Tilda, Tomas, Ulla,
    Vera, Viktor, Wanda, Yara, Yusuf, Zoe
    """
)
LAST = _words(
    """
    Abara, Ahlgren, Almeida, Andrade, Arslan, Balogh, Bauer, Bellini, Berg, Bianchi, Blom, Borges, Brandt, Bruun,
    Castellan, Cerny, Chandra, Conti, Cruz, Dahl, Danek, Deveraux, Dimitrov, Duarte, Ekberg, Eriksen, Escobar,
    Faber, Farkas, Ferrante, Fischer, Fonseca, Forsberg, Galvan, Gerber, Greco, Haas, Halloran, Hansen, Hartmann,
    Hasan, Hollis, Horvat, Iversen, Jansen, Jovanovic, Kaplan, Karlsen, Keller, Khalil, Kimura, Kovacs, Kowal,
    Kruger, Lachance, Larsen, Lindqvist, Lombardi, Lopes, Madsen, Mahlangu, Marchetti, Marin, Mensah, Meyer,
    Mikkelsen, Moreau, Nagy, Nakata, Navarro, Nedelcu, Nielsen, Novak, Nwosu, Okafor, Olsen, Orlov, Osei, Palmer,
    Paredes, Petrov, Pinto, Popescu, Quist, Ramos, Rao, Reyes, Ricci, Rossi, Ruiz, Saito, Salonen, Santos, Sato,
    Schreiber, Sharma, Silva, Soto, Steiner, Svensson, Szabo, Tanaka, Torres, Ueda, Vance, Varga, Vieira, Vogel,
    Wagner, Weiss, Winther, Yilmaz, Zamora, Zeman, Zhou
    """
)
HEADS = _words(
    """
    Alder, Amber, Anchor, Arbor, Argent, Aspen, Aurora, Basalt, Beacon, Birch, Boreal, Bramble, Bright, Canal,
    Cardinal, Cedar, Cinder, Cobalt, Compass, Copper, Coral, Crescent, Cypress, Delta, Dune, Eastgate, Ember,
    Falcon, Fern, Fjord, Flint, Foxglove, Garnet, Glacier, Granite, Harbor, Hazel, Heron, Highland, Indigo, Iron,
    Ivory, Jasper, Juniper, Kestrel, Lantern, Larch, Linden, Lumen, Magnolia, Maple, Marble, Meridian, Mistral,
    Mosaic, Nimbus, Northwind, Oakfield, Obsidian, Onyx, Opal, Orchard, Osprey, Pebble, Pine, Polar, Prairie,
    Quartz, Raven, Redwood, Ridge, Riverside, Rowan, Saffron, Sage, Sequoia, Slate, Solstice, Sparrow, Spruce,
    Summit, Tamarack, Tidal, Timber, Topaz, Umbra, Valley, Vesper, Violet, Walnut, Willow, Zenith
    """
)
TAILS = _words(
    """
    Advisory, Analytics, Bakery, Bearings, Catering, Ceramics, Chemicals, Components, Construction, Consulting,
    Couriers, Dairy, Design, Electrics, Engineering, Fabrics, Farms, Fittings, Foods, Forwarding, Freight,
    Furniture, Gardens, Glass, Instruments, Interiors, Labs, Lighting, Logistics, Machines, Marine, Media, Metals,
    Mills, Motors, Optics, Packaging, Paper, Plastics, Print, Pumps, Robotics, Roofing, Seeds, Software, Steel,
    Supplies, Systems, Textiles, Tools, Trading, Travel, Valves, Works
    """
)
FORMS = ("", "", " Ltd", " Inc", " GmbH", " AB", " BV", " SA", " Oy", " Co", " Partners", " Group")
CITIES = _words(
    """
    Almere, Arvika, Basel, Bergen, Bilbao, Brno, Cardiff, Coimbra, Cork, Delft, Dresden, Durban, Espoo, Faro,
    Galway, Gdynia, Ghent, Graz, Haifa, Izmir, Kaunas, Kobe, Kosice, Lausanne, Leeds, Linz, Lund, Lyon, Malmo,
    Mombasa, Nantes, Odense, Oulu, Parma, Pecs, Plovdiv, Porto, Quito, Rijeka, Rosario, Siena, Split, Tampere,
    Tartu, Trieste, Turku, Utrecht, Valencia, Varna, Zadar
    """
)
STREETS = _words(
    """
    Bridge, Canal, Chapel, Church, Clock, Dock, Ferry, Field, Forge, Fountain, Garden, Gate, Harbour, Hill, Kiln,
    Lake, Lime, Market, Mill, Mint, Park, Pier, Quarry, Rope, School, Smith, Spring, Station, Tanner, Tower, Vine,
    Wharf
    """
)
GOODS = _words(
    """
    A4 paper (box), access badge, air filter, archive box, battery pack, bearing 6204, bench vise, bookshelf, brass
    valve, bubble wrap roll, cable tie (100), calibration weight, ceiling lamp, cleaning cloth, coffee beans 1 kg,
    copper pipe 2 m, cordless drill, cutting oil 5 l, desk lamp, document tray, door closer, drill bit set, dust
    mask (50), ear protection, extension cord, fire blanket, first aid kit, flow meter, folding table, gasket set,
    glass beaker, hand pump, hex bolt M8 (200), hinge pair, hose clamp, hydraulic jack, ink cartridge, insulation
    tape, keyboard, label roll, laptop stand, LED strip, level gauge, linen sheet, lock cylinder, magnet holder,
    meeting chair, micro switch, monitor arm, mounting rail, network cable, noise panel, office chair, packing tape,
    pallet, photo print, plant pot, power supply, pressure gauge, printer drum, projector bulb, quartz timer, relay
    module, ring binder, roller blind, rubber mat, safety glasses, sample jar, sand paper, scanner sheet, screen
    wipes, sealing ring, shelf bracket, signal lamp, solder wire, spray bottle, stapler, steel sheet, step ladder,
    storage rack, table cloth, tea assortment, thermal paste, toner black, torque wrench, towel set, transport
    strap, trolley, tube fitting, USB hub, vacuum bag, wall clock, water filter, webcam, whiteboard, work gloves,
    wrench set, zip bag
    """
)
AREAS = _words(
    """
    Accounts, Administration, Archive, Assembly, Back office, Board, Branch north, Branch south, Buying, Campaigns,
    Clients, Controlling, Dispatch, Events, Export, Facilities, Field service, Finance, Front desk, Import,
    Inventory, Legal, Logistics, Maintenance, Marketing, Operations, Orders, Payroll, People, Planning, Projects,
    Quality, Reception, Research, Sales, Secretariat, Service desk, Support, Training, Travel desk, Warehouse,
    Workshop
    """
)
_SHADES = _words(
    """
    Amber, Blue, Calm, Clear, Crimson, Deep, Early, Fair, Golden, Grand, Green, Grey, High, Inner, Late, Light,
    Long, Lucky, New, Northern, Open, Outer, Plain, Prime, Quick, Quiet, Red, Rising, Royal, Silent, Silver, Small,
    Southern, Still, Swift, True, Urban, Vast, Warm, White, Wide, Wild
    """
)
_SIGHTS = _words(
    """
    Acorn, Arch, Badger, Bay, Bell, Bridge, Brook, Canyon, Castle, Cliff, Cloud, Comet, Crane, Delta, Dove, Eagle,
    Elm, Falcon, Field, Finch, Forest, Fox, Gate, Grove, Harbor, Hawk, Hill, Island, Kite, Lake, Lark, Leaf, Lion,
    Lynx, Meadow, Moon, Oak, Otter, Owl, Path, Peak, Pine, Pond, Reef, River, Rock, Sail, Shore, Sky, Star, Stone,
    Stream, Swan, Tide, Tower, Trail, Valley, Wave
    """
)
PROJECT_WORDS = (_SHADES, _SIGHTS)
TOPICS = _words(
    """
    Audit preparation, Budget review, Campaign draft, Capacity check, Client visit, Contract talk, Cost review, Data
    cleaning, Delivery plan, Demo rehearsal, Design round, Forecast, Handover, Hiring interview, Incident review,
    Kick-off, Layout session, Lessons learned, Market update, Milestone check, Onboarding, Packaging test, Price
    round, Product tour, Quality circle, Quarter close, Release call, Report writing, Risk review, Roadmap, Safety
    walk, Sales call, Sample check, Site inspection, Sprint review, Staff talk, Status round, Stock count, Supplier
    call, Survey review, Team lunch plan, Tender review, Tool training, Travel plan, Vendor demo, Website check,
    Workshop prep, Year plan
    """
)
ROOMS = ("Atlas", "Birch room", "Blue room", "Corner office", "Dome", "Library", "Loft", "Studio 2", "Terrace", "Video")
_UNSAFE = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Company:
    """`name` with its legal form, `slug` for file names, `domain` of its mail, where it is."""

    name: str
    slug: str
    domain: str
    city: str


@dataclass(frozen=True, slots=True)
class Person:
    """A name with a mail address and a telephone number (+ and digits in groups)."""

    name: str
    email: str
    phone: str

    @property
    def first(self) -> str:
        """The given name."""
        return self.name.split(" ")[0]


def slug(text: str) -> str:
    """Lower case letters and digits, all else one hyphen: for file names."""
    return _UNSAFE.sub("-", text.lower()).strip("-")


def amount(cents: int) -> str:
    """Whole cents as text with two decimals: 123450 -> 1234.50."""
    sign, cents = ("-", -cents) if cents < 0 else ("", cents)
    return f"{sign}{cents // 100}.{cents % 100:02d}"


class Names:
    """Draws people, companies and codes without repeating one (beyond the lists, a number is added)."""

    def __init__(self, generator: random.Random) -> None:
        self.random = generator
        self._used: set[str] = set()

    def unique(self, make: Sequence[Sequence[str]], joint: str = " ") -> str:
        """One word of each list, joined, not drawn before."""
        for attempt in range(60):
            name = joint.join(self.random.choice(words) for words in make)
            if attempt > 40:
                name += f"{joint}{self.random.randint(2, 999)}"
            if name not in self._used:
                break
        self._used.add(name)
        return name

    def company(self) -> Company:
        """A company not named before."""
        core = self.unique((HEADS, TAILS))
        form = self.random.choice(FORMS)
        ending = self.random.choice(("example", "example.com", "example.net", "example.org"))
        return Company(core + form, slug(core), f"{slug(core)}.{ending}", self.random.choice(CITIES))

    def person(self, domain: str) -> Person:
        """A person not named before, with an address in `domain`."""
        name = self.unique((FIRST, LAST))
        first, last = name.lower().split(" ", 1)
        style = self.random.randrange(3)
        local = (f"{first}.{last}", f"{first[0]}.{last}", f"{first}_{last}")[style].replace(" ", "")
        while f"{local}@{domain}" in self._used:
            local += str(self.random.randint(2, 99))
        self._used.add(f"{local}@{domain}")
        groups = [self.random.randint(20, 98), self.random.randint(10, 999), self.random.randint(1000, 9999)]
        return Person(name, f"{local}@{domain}", "+" + " ".join(map(str, groups)))

    def project(self) -> str:
        """A project's name in two words."""
        return self.unique(PROJECT_WORDS)

    def code(self, pattern: str) -> str:
        """A code not drawn before: each # becomes a digit, each ? a letter."""
        while True:
            text = "".join(
                str(self.random.randint(0, 9))
                if c == "#"
                else self.random.choice("ABCDEFGHKLMNPRSTVWX")
                if c == "?"
                else c
                for c in pattern
            )
            if text not in self._used:
                self._used.add(text)
                return text

    def address(self) -> str:
        """A street with a number and a city."""
        r = self.random
        return f"{r.randint(1, 180)} {r.choice(STREETS)} Street, {r.choice(CITIES)}"

    def goods(self, count: int) -> list[str]:
        """Different articles."""
        return self.random.sample(GOODS, min(count, len(GOODS)))
