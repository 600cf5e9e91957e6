"""What holds everywhere, by subject; every value a deployment may change is read from the environment."""

from config.settings.base.chat import *
from config.settings.base.data import *
from config.settings.base.environment import *
from config.settings.base.limits import *
from config.settings.base.logs import *
from config.settings.base.people import *
from config.settings.base.rest import *
from config.settings.base.search import *
from config.settings.base.security import *
from config.settings.base.site import *
from config.settings.base.tasks import *
