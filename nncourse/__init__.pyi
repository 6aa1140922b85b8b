from . import datasets as datasets
from . import device as device
from .backend import choose as choose
from .catalogue import find as find
from .cuda.compile import resources as resources
from .errors import CourseError as CourseError
from .group import ALONE as ALONE
from .kernels.kernel import Kernel as Kernel
from .model import metrics as metrics
from .model.network import backpropagation as backpropagation
from .model.network import cost_of as cost_of
from .model.network import forward as forward
from .model.network import make_network as make_network
from .model.network import training_step as training_step
from .model.training import evaluate as evaluate
from .model.training import train as train
from .model.updates import SGD as SGD
from .model.updates import Adam as Adam
from .model.updates import constant as constant
from .model.updates import cosine_decay as cosine_decay
from .model.updates import exponential_decay as exponential_decay
from .model.updates import step_decay as step_decay

__version__: str
