"""A scikit-learn pipeline: what makes a car drive far on a gallon of fuel? Its raw columns are the players.

python pipeline.py [--small]        draws pipeline.png
"""

import sys

import pandas as pd
from matplotlib import pyplot as plt
from mlxtend.data import autompg_data
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from dasp import Explainer, plots

ROWS = 10 if "--small" in sys.argv else 120

columns = ["cylinders", "displacement", "horsepower", "weight", "acceleration", "year", "origin"]
x, miles = autompg_data()
cars = pd.DataFrame(x[:, :7], columns=columns)
cars["origin"] = cars["origin"].map({1: "USA", 2: "Europe", 3: "Japan"})

encoder = make_column_transformer((OneHotEncoder(), ["origin"]), remainder="passthrough")
model = make_pipeline(encoder, GradientBoostingRegressor(random_state=0)).fit(cars, miles)

some = cars.sample(ROWS, random_state=1)
explainer = Explainer(model.predict, background=cars.sample(20, random_state=0), output_names=["miles per gallon"])
explanation = explainer(some)
best = explanation[int(model.predict(some).argmax())]

figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
plots.beeswarm(explanation, title=f"{ROWS} cars", ax=left)
plots.waterfall(best, title="the thriftiest one", ax=right)
figure.savefig("pipeline.png", dpi=110)
