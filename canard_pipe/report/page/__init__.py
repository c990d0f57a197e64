"""``canard-pipe report``: what a run did, as one page for a browser without a network, and as a table of tries.

- ``tries.py`` reads the tries of commands; ``trace.py`` writes them down;
- ``figures.py`` sums them up by step and by sample; ``failures.py`` groups what failed by its cause;
- ``timeline.py`` places them in time; ``render.py`` fills the template, with ``page.css`` and ``page.js`` inside.
"""
