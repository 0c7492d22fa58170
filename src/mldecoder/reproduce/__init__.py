"""The paper's tables, run: one command a table, our figures beside the paper's."""

from mldecoder.reproduce.registry import TABLES as TABLES
from mldecoder.reproduce.registry import find_table as find_table
from mldecoder.reproduce.table import Budget as Budget
from mldecoder.reproduce.table import Table as Table
