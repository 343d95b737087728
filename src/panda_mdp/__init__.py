"""Metric differential privacy for finite domains: optimal tables, exact audits, PAnDA."""

from panda_mdp.city.city import City
from panda_mdp.city.read.load import load_city
from panda_mdp.city.read.places import Places, load_places
from panda_mdp.city.synthetic import synthetic_city
from panda_mdp.city.traces import count_visits, load_traces
from panda_mdp.city.travel_loss import travel_loss
from panda_mdp.frames.key import DrawKey
from panda_mdp.frames.perturb import perturb
from panda_mdp.frames.summary import FrameSummary
from panda_mdp.loss import distance_loss
from panda_mdp.meaning.attack import Attack, attack
from panda_mdp.meaning.epsilon import Choice, choose_epsilon
from panda_mdp.meaning.explain import Explanation, explain
from panda_mdp.meaning.fences import Fences
from panda_mdp.methods.benders.benders import benders
from panda_mdp.methods.coarse import coarse, coarse_unsound
from panda_mdp.methods.constopt import constopt
from panda_mdp.methods.exponential import exponential
from panda_mdp.methods.geometric import geometric
from panda_mdp.methods.given import repair
from panda_mdp.methods.laplace import planar_laplace
from panda_mdp.methods.loss_exponential import loss_exponential
from panda_mdp.methods.optimal.optimal import optimal
from panda_mdp.methods.permute_and_flip import permute_and_flip
from panda_mdp.methods.prune import Pruned, prune
from panda_mdp.methods.remap import remap
from panda_mdp.methods.tight_constraints import tight_constraints
from panda_mdp.outputs import Outputs
from panda_mdp.panda.accounts.budgets import PandaPlan
from panda_mdp.panda.audit import PandaAudit, audit_panda
from panda_mdp.panda.calibrate import Calibration, calibrate
from panda_mdp.panda.file.decode import load_panda
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.panda.result import PandaNoGuarantee, PandaResult
from panda_mdp.panda.run import panda, study_panda
from panda_mdp.panda.selection.ball import BallAnchors
from panda_mdp.panda.selection.bernoulli import BernoulliAnchors
from panda_mdp.panda.simulate.trajectory import observed_trajectory, trajectory
from panda_mdp.panda.simulate.users import reoptimise
from panda_mdp.prior import Prior
from panda_mdp.privacy.audit import Audit, audit
from panda_mdp.privacy.continuous import ContinuousAudit
from panda_mdp.privacy.guarantee import Guarantee, compose
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.space.embeddings import load_embeddings
from panda_mdp.space.snapping import Snap
from panda_mdp.table.certificate import Expected
from panda_mdp.table.everywhere import EverywhereMechanism
from panda_mdp.table.inspect import Unverified, inspect
from panda_mdp.table.mechanism import Mechanism, NoGuarantee, Simulation
from panda_mdp.table.pmdc.archive import load_compact, save_compact
from panda_mdp.table.pmdc.compact import CompactTable
from panda_mdp.table.pmdp.decode import load
from panda_mdp.version import __version__

__all__ = [
    "Attack",
    "Audit",
    "BallAnchors",
    "BernoulliAnchors",
    "Calibration",
    "Choice",
    "City",
    "CompactTable",
    "ContinuousAudit",
    "Domain",
    "DrawKey",
    "EverywhereMechanism",
    "Expected",
    "Explanation",
    "Fences",
    "FrameSummary",
    "Guarantee",
    "Mechanism",
    "NoGuarantee",
    "Outputs",
    "PandaAudit",
    "PandaNoGuarantee",
    "PandaPlan",
    "PandaResult",
    "PandaTable",
    "Places",
    "Prior",
    "Problem",
    "Pruned",
    "Simulation",
    "Snap",
    "Unverified",
    "__version__",
    "attack",
    "audit",
    "audit_panda",
    "benders",
    "calibrate",
    "choose_epsilon",
    "coarse",
    "coarse_unsound",
    "compose",
    "constopt",
    "count_visits",
    "distance_loss",
    "explain",
    "exponential",
    "geometric",
    "inspect",
    "load",
    "load_city",
    "load_compact",
    "load_embeddings",
    "load_panda",
    "load_places",
    "load_traces",
    "loss_exponential",
    "observed_trajectory",
    "optimal",
    "panda",
    "permute_and_flip",
    "perturb",
    "planar_laplace",
    "prune",
    "remap",
    "reoptimise",
    "repair",
    "save_compact",
    "study_panda",
    "synthetic_city",
    "tight_constraints",
    "trajectory",
    "travel_loss",
]
