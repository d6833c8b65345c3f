"""coterie: clustered and personalised federated learning.

    import coterie as ct

    clients = ct.partition("digits", "rotation", clients=20)
    result = ct.fit(ct.Kin(), clients, "cnn-s", rounds=20)
    result.accuracy.mean(), result.clusters

Names are loaded when they are first used, so that importing coterie costs nothing.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.core.version import __version__

if TYPE_CHECKING:  # every public name, once: for type checkers, and below for whoever uses it
    from coterie.attacks.attack import Attack as Attack
    from coterie.core.answers import AnswerForm as AnswerForm
    from coterie.core.answers import Form as Form
    from coterie.core.bounds import Count as Count
    from coterie.core.bounds import Decay as Decay
    from coterie.core.bounds import NonNegative as NonNegative
    from coterie.core.bounds import Part as Part
    from coterie.core.bounds import Positive as Positive
    from coterie.core.bounds import Share as Share
    from coterie.core.bounds import Whole as Whole
    from coterie.core.bounds import dataclass as dataclass
    from coterie.core.client import Client as Client
    from coterie.core.errors import AccessError as AccessError
    from coterie.core.errors import CheckpointError as CheckpointError
    from coterie.core.errors import ClientError as ClientError
    from coterie.core.errors import ConfigError as ConfigError
    from coterie.core.errors import CoterieError as CoterieError
    from coterie.core.errors import CoterieWarning as CoterieWarning
    from coterie.core.errors import DataError as DataError
    from coterie.core.errors import DivergedError as DivergedError
    from coterie.core.errors import FieldError as FieldError
    from coterie.core.errors import QuorumError as QuorumError
    from coterie.core.errors import StorageError as StorageError
    from coterie.core.known import Known as Known
    from coterie.core.layout import Layout as Layout
    from coterie.core.loop import evaluate as evaluate
    from coterie.core.loop import run as run
    from coterie.core.rng import stream as stream
    from coterie.core.types import Evaluation as Evaluation
    from coterie.core.types import Federation as Federation
    from coterie.core.types import Method as Method
    from coterie.core.types import Replies as Replies
    from coterie.core.types import Reply as Reply
    from coterie.core.types import Sendable as Sendable
    from coterie.core.types import State as State
    from coterie.core.types import Task as Task
    from coterie.data.dataset import Data as Data
    from coterie.data.kinds import IID as IID
    from coterie.data.kinds import Arrivals as Arrivals
    from coterie.data.kinds import Blur as Blur
    from coterie.data.kinds import Classes as Classes
    from coterie.data.kinds import ClusteredDirichlet as ClusteredDirichlet
    from coterie.data.kinds import Contrast as Contrast
    from coterie.data.kinds import Dirichlet as Dirichlet
    from coterie.data.kinds import Drift as Drift
    from coterie.data.kinds import LabelGroups as LabelGroups
    from coterie.data.kinds import LabelSets as LabelSets
    from coterie.data.kinds import LabelSkew as LabelSkew
    from coterie.data.kinds import Natural as Natural
    from coterie.data.kinds import Noise as Noise
    from coterie.data.kinds import Permutation as Permutation
    from coterie.data.kinds import Quantity as Quantity
    from coterie.data.kinds import QuantityDirichlet as QuantityDirichlet
    from coterie.data.kinds import Rotation as Rotation
    from coterie.data.kinds import Shards as Shards
    from coterie.data.load import load as load
    from coterie.data.population import Population as Population
    from coterie.data.population import partition as partition
    from coterie.methods.apfl import APFL as APFL
    from coterie.methods.autocfl import AutoCFL as AutoCFL
    from coterie.methods.cfl import CFL as CFL
    from coterie.methods.cflgt import CFLGT as CFLGT
    from coterie.methods.creff import CReFF as CReFF
    from coterie.methods.dapfl import DAPFL as DAPFL
    from coterie.methods.ditto import Ditto as Ditto
    from coterie.methods.fedala import FedALA as FedALA
    from coterie.methods.fedamp import FedAMP as FedAMP
    from coterie.methods.fedamp import HeurFedAMP as HeurFedAMP
    from coterie.methods.fedavg import FedAvg as FedAvg
    from coterie.methods.fedavg import FedAvgFT as FedAvgFT
    from coterie.methods.fedavg import FedProx as FedProx
    from coterie.methods.fedbabu import FedBABU as FedBABU
    from coterie.methods.fedclust import FedClust as FedClust
    from coterie.methods.feddrift import FedDrift as FedDrift
    from coterie.methods.feddsmic import FedDS as FedDS
    from coterie.methods.feddsmic import FedDSMIC as FedDSMIC
    from coterie.methods.fedem import FedEM as FedEM
    from coterie.methods.fednova import FedNova as FedNova
    from coterie.methods.fedpac import FedPAC as FedPAC
    from coterie.methods.fedpfa import FedPFA as FedPFA
    from coterie.methods.fedrc import FedRC as FedRC
    from coterie.methods.fedsem import FedSEM as FedSEM
    from coterie.methods.fedsoft import FedSoft as FedSoft
    from coterie.methods.flhc import FLHC as FLHC
    from coterie.methods.ifca import IFCA as IFCA
    from coterie.methods.kin import Kin as Kin
    from coterie.methods.local import Local as Local
    from coterie.methods.metadata import Metadata as Metadata
    from coterie.methods.oracle import Oracle as Oracle
    from coterie.methods.pacfl import PACFL as PACFL
    from coterie.methods.partial import FedBN as FedBN
    from coterie.methods.partial import FedPer as FedPer
    from coterie.methods.partial import FedRep as FedRep
    from coterie.methods.partial import LGFedAvg as LGFedAvg
    from coterie.methods.perfedavg import PerFedAvg as PerFedAvg
    from coterie.methods.pfedme import PFedMe as PFedMe
    from coterie.methods.scaffold import SCAFFOLD as SCAFFOLD
    from coterie.models.loading import load_model as load_model
    from coterie.models.saved import TrainedModel as TrainedModel
    from coterie.runs.comparison import Comparison as Comparison
    from coterie.runs.newcomers import Joined as Joined
    from coterie.studies.comparison.running import compare as compare
    from coterie.studies.finished.newcomers import join as join
    from coterie.studies.finished.opening import open_run as open_run
    from coterie.studies.finished.placement import Placement as Placement
    from coterie.studies.insight.inspection import Inspection as Inspection
    from coterie.studies.insight.inspection import inspect as inspect
    from coterie.studies.run.experiment import resume as resume
    from coterie.studies.run.result import Result as Result
    from coterie.studies.run.training import fit as fit
    from coterie.tasks.optimiser import SGD as SGD
    from coterie.tasks.optimiser import Adam as Adam
    from coterie.tasks.optimiser import AdamW as AdamW
    from coterie.tasks.optimiser import Optimiser as Optimiser
    from coterie.tasks.private import Privacy as Privacy
    from coterie.tasks.schedule import Schedule as Schedule
    from coterie.tasks.score import Score as Score
    from coterie.tasks.signature import Basis as Basis
    from coterie.tasks.signature import Histogram as Histogram
    from coterie.tasks.signature import Importance as Importance
    from coterie.tasks.signature import Losses as Losses
    from coterie.tasks.signature import Sparsity as Sparsity
    from coterie.tasks.signature import Trajectory as Trajectory
    from coterie.tasks.solver import Descent as Descent
    from coterie.tasks.solver import Solver as Solver
    from coterie.tasks.steps import Forward as Forward
    from coterie.tasks.steps import SteppedTask as SteppedTask
    from coterie.tasks.steps import Stepwise as Stepwise
    from coterie.tasks.train import Train as Train
    from coterie.tasks.variants import Choose as Choose
    from coterie.tasks.variants import Pulled as Pulled
    from coterie.trackers import track as track
    from coterie.words import affinity as affinity
    from coterie.words import distance as distance
    from coterie.words import grouping as grouping
    from coterie.words import mixing as mixing
    from coterie.words import robust as robust
    from coterie.words import voting as voting
    from coterie.words.mixing import merge as merge
    from coterie.words.mixing import mix as mix
    from coterie.words.server import ServerOptimiser as ServerOptimiser


def _homes() -> dict[str, str]:
    """The module each public name comes from, as the block above says it."""
    body = ast.parse(Path(__file__).read_text(encoding="utf-8")).body
    block = next(node for node in body if isinstance(node, ast.If))
    lines = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(line.module) for line in lines for alias in line.names}


_HOME = _homes()

__all__ = ["__version__", *_HOME]

if not TYPE_CHECKING:  # a type checker shall tell of a name that is not there

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'coterie' has no attribute {name!r}")
        home = import_module(_HOME[name])
        # The words are modules: a submodule is no attribute of its package before it is imported.
        return getattr(home, name, None) or import_module(f"{home.__name__}.{name}")


def __dir__() -> list[str]:
    return __all__
