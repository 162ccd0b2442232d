"""Which folders become which packages; all else stands in pyproject.toml.

tasks/ and gin/ stand at the top of the repository to be read. Installed, they live inside the
package, so that nobody gets a top-level package called "tasks" and nothing shadows gin (gin/ must
never get an __init__.py).
"""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["xlingjax", "xlingjax.*"]), "xlingjax.tasks", "xlingjax.gin"],
    package_dir={"xlingjax.tasks": "tasks", "xlingjax.gin": "gin"},
)
