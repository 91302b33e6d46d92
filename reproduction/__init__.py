"""The experiments of the DASP paper, reproduced, and the estimators of `dasp` compared with other libraries.

    python -m reproduction demo         explain a network with `dasp`, then run the paper's three experiments
    python -m reproduction benchmark    compare the estimators with shap, Captum and shapiq

This package is a client of `dasp`: it uses the public interface only, and is not part of the wheel. It runs in a
checkout.

    experiment, parkinsons, dna, mnist   the paper's tasks: data, networks, what is explained, sizes
    data_files, store                    where data come from, and what is kept of a run
    comparison_methods, peers            the methods that the estimators of `dasp` are compared with
    outcome, claims                      a run of an experiment, and what it says about the paper's claims
    style, figures, gaussianity          what is drawn
    results_page                         what is written
    demo, benchmark                      the two commands
"""
