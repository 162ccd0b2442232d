"""Many runs, one after another: sweeps, score cards, bake-offs, tables of the papers, adapting."""
