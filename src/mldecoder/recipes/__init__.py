"""Recipes: every hyper-parameter of a training run in one readable file."""

from mldecoder.recipes.load import list_recipes as list_recipes
from mldecoder.recipes.load import load_recipe as load_recipe
from mldecoder.recipes.recipe import Recipe as Recipe
