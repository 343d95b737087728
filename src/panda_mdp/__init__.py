"""Metric differential privacy for finite domains: optimal tables, exact audits, PAnDA."""

from panda_mdp.city.city import City, travel_loss
from panda_mdp.city.maps import load_city
from panda_mdp.city.places import load_places
from panda_mdp.city.synthetic import synthetic_city
from panda_mdp.city.traces import load_traces
from panda_mdp.frames.drawing import FrameSummary
from panda_mdp.frames.estimate import estimate, quality
from panda_mdp.frames.key import DrawKey
from panda_mdp.frames.perturb import Columns, perturb
from panda_mdp.frames.text import sanitise
from panda_mdp.loss import distance_loss
from panda_mdp.meaning.attack import attack
from panda_mdp.meaning.epsilon import choose_epsilon
from panda_mdp.meaning.explain import explain
from panda_mdp.methods.adjust import remap, repair
from panda_mdp.methods.benders import benders
from panda_mdp.methods.closed_forms import (
    exponential,
    loss_exponential,
    permute_and_flip,
    tight_constraints,
)
from panda_mdp.methods.coarse import Fences, coarse
from panda_mdp.methods.constopt import constopt
from panda_mdp.methods.everywhere import optimal_everywhere
from panda_mdp.methods.optimal.lp import solve_lp
from panda_mdp.methods.optimal.optimal import optimal
from panda_mdp.methods.planar_laplace import planar_laplace
from panda_mdp.methods.second.dominate import dominate
from panda_mdp.methods.second.second import limit_attacker, second_objective
from panda_mdp.panda.audit import audit_panda
from panda_mdp.panda.balls import BallAnchors
from panda_mdp.panda.calibrate import SearchSpace, calibrate
from panda_mdp.panda.coins import BernoulliAnchors
from panda_mdp.panda.file import load
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.panda.run import panda, study_panda
from panda_mdp.panda.selection import PandaOptions
from panda_mdp.prior import Prior
from panda_mdp.privacy.audit import Audit, audit
from panda_mdp.privacy.guarantee import Guarantee, compose
from panda_mdp.problem import Outputs, Problem
from panda_mdp.space.domain import Domain
from panda_mdp.space.embeddings import load_embeddings
from panda_mdp.table.decode import Expected, inspect
from panda_mdp.table.everywhere import EverywhereMechanism
from panda_mdp.table.mechanism import Mechanism, NoGuarantee, Release
from panda_mdp.table.thin import compact
from panda_mdp.version import __version__ as __version__

__all__ = [
    "Audit",
    "BallAnchors",
    "BernoulliAnchors",
    "City",
    "Columns",
    "Domain",
    "DrawKey",
    "EverywhereMechanism",
    "Expected",
    "Fences",
    "FrameSummary",
    "Guarantee",
    "Mechanism",
    "NoGuarantee",
    "Outputs",
    "PandaOptions",
    "PandaTable",
    "Prior",
    "Problem",
    "Release",
    "SearchSpace",
    "attack",
    "audit",
    "audit_panda",
    "benders",
    "calibrate",
    "choose_epsilon",
    "coarse",
    "compact",
    "compose",
    "constopt",
    "distance_loss",
    "dominate",
    "estimate",
    "explain",
    "exponential",
    "inspect",
    "limit_attacker",
    "load",
    "load_city",
    "load_embeddings",
    "load_places",
    "load_traces",
    "loss_exponential",
    "optimal",
    "optimal_everywhere",
    "panda",
    "permute_and_flip",
    "perturb",
    "planar_laplace",
    "quality",
    "remap",
    "repair",
    "sanitise",
    "second_objective",
    "solve_lp",
    "study_panda",
    "synthetic_city",
    "tight_constraints",
    "travel_loss",
]
