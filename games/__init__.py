"""Games: rules that players meet in. Importable without torch."""

from coplay.games.adapters.open_spiel import OpenSpiel
from coplay.games.adapters.pettingzoo_game import PettingZoo
from coplay.games.adapters.text_arena import TextArena
from coplay.games.alternating_offers import AlternatingOffers, Ultimatum
from coplay.games.bargaining import Bargaining
from coplay.games.base import (
    Game,
    GameData,
    GameParameters,
    GameSpec,
    MalformedRule,
    Observation,
    StepOutcome,
)
from coplay.games.buy_sell import BuySell
from coplay.games.chance import Chance, Order, derive_seed
from coplay.games.coin_game import CoinGame
from coplay.games.commons import Commons
from coplay.games.deal_or_no_deal import DealOrNoDeal
from coplay.games.grammar import (
    Action,
    Choice,
    Fields,
    FreeText,
    Grammar,
    Malformed,
    MalformedReason,
    Move,
    Number,
    OneOf,
    grammar_from_json,
    register_grammar,
)
from coplay.games.iterated_matrix import IteratedMatrix
from coplay.games.kuhn_poker import KuhnPoker
from coplay.games.leduc_poker import LeducPoker
from coplay.games.mixture import Mixture, Variant
from coplay.games.names import nearest
from coplay.games.public_goods import PublicGoods
from coplay.games.registry import (
    GameParameterError,
    GamePluginError,
    GameRegistrationError,
    UnknownGameError,
    available_games,
    game_class,
    make_game,
    register_game,
)
from coplay.games.replies import strip_reasoning
from coplay.games.rock_paper_scissors import RockPaperScissors
from coplay.games.search_qa import SearchQa
from coplay.games.split import Split
from coplay.games.stag_hunt_talk import StagHuntTalk
from coplay.games.tasks import Tasks
from coplay.games.tic_tac_toe import TicTacToe
from coplay.games.tools import Tool, Tools
from coplay.games.trading import Trading
from coplay.games.trust_and_split import TrustAndSplit
from coplay.games.two_round_bargaining import TwoRoundBargaining

for _game in (
    CoinGame,
    AlternatingOffers,
    Bargaining,
    BuySell,
    Commons,
    DealOrNoDeal,
    IteratedMatrix,
    KuhnPoker,
    LeducPoker,
    OpenSpiel,
    PettingZoo,
    PublicGoods,
    RockPaperScissors,
    SearchQa,
    Split,
    StagHuntTalk,
    Tasks,
    TextArena,
    TicTacToe,
    Trading,
    TrustAndSplit,
    TwoRoundBargaining,
    Ultimatum,
):
    register_game(_game)

__all__ = [
    "Action",
    "AlternatingOffers",
    "Bargaining",
    "BuySell",
    "Chance",
    "Choice",
    "CoinGame",
    "Commons",
    "DealOrNoDeal",
    "Fields",
    "FreeText",
    "Game",
    "GameData",
    "GameParameterError",
    "GameParameters",
    "GamePluginError",
    "GameRegistrationError",
    "GameSpec",
    "Grammar",
    "IteratedMatrix",
    "KuhnPoker",
    "LeducPoker",
    "Malformed",
    "MalformedReason",
    "MalformedRule",
    "Mixture",
    "Move",
    "Number",
    "Observation",
    "OneOf",
    "OpenSpiel",
    "Order",
    "PettingZoo",
    "PublicGoods",
    "RockPaperScissors",
    "SearchQa",
    "Split",
    "StagHuntTalk",
    "StepOutcome",
    "Tasks",
    "TextArena",
    "TicTacToe",
    "Tool",
    "Tools",
    "Trading",
    "TrustAndSplit",
    "TwoRoundBargaining",
    "Ultimatum",
    "UnknownGameError",
    "Variant",
    "available_games",
    "derive_seed",
    "game_class",
    "grammar_from_json",
    "make_game",
    "nearest",
    "register_game",
    "register_grammar",
    "strip_reasoning",
]
