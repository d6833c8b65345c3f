"""What a client can be asked: to train, to be tested, to describe its data.

A task is a frozen dataclass of plain values that runs on the client with nothing but what is the
client's own and what was sent. Engines run tasks; they know none of the methods that ask.

May touch: core, words.
"""

from coterie.tasks.optimiser import SGD as SGD
from coterie.tasks.optimiser import Adam as Adam
from coterie.tasks.optimiser import AdamW as AdamW
from coterie.tasks.optimiser import sgd as sgd
from coterie.tasks.private import Privacy as Privacy
from coterie.tasks.schedule import Schedule as Schedule
from coterie.tasks.score import Score as Score
from coterie.tasks.signature import Basis as Basis
from coterie.tasks.signature import Histogram as Histogram
from coterie.tasks.signature import Importance as Importance
from coterie.tasks.signature import Losses as Losses
from coterie.tasks.signature import Sparsity as Sparsity
from coterie.tasks.signature import Trajectory as Trajectory
from coterie.tasks.solver import Solver as Solver
from coterie.tasks.solver import equal_steps as equal_steps
from coterie.tasks.solver import trained as trained
from coterie.tasks.steps import SteppedTask as SteppedTask
from coterie.tasks.steps import Stepwise as Stepwise
from coterie.tasks.train import Train as Train
from coterie.tasks.train import Training as Training
from coterie.tasks.train import own_row as own_row
from coterie.tasks.variants import Choose as Choose
from coterie.tasks.variants import Pulled as Pulled
from coterie.tasks.verify import Gains as Gains
from coterie.tasks.verify import TrainHalves as TrainHalves
from coterie.tasks.verify import VerifiedScore as VerifiedScore
