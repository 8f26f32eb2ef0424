.PHONY: help demo test check clients torture matrix bench docs picture bundle clean

help:
	@echo "make demo     drive the server as an MCP client does, then let a swarm survey this project"
	@echo "make test     format, lint, types and tests"
	@echo "make check    the same with the fast tests only"
	@echo "make clients  Claude Code, Codex and Gemini CLI drive the servers, and agents (1 GB of packages)"
	@echo "make torture  kills, floods, endurance, further shells; whole programs, more examples"
	@echo "make matrix   the fast tests under Python 3.11 to 3.14, lowest and highest dependencies"
	@echo "make bench    measure against floors taken in the same run"
	@echo "make docs     the site, into build/site; reference and man pages from the code"
	@echo "make picture  docs/assets/session.svg anew, from a real session, and the console's pages"
	@echo "make bundle   build/bundle.mcpb for Claude Desktop"
	@echo "make clean    remove .venv and caches"

demo:
	@scripts/bootstrap
	@.venv/bin/python scripts/demo.py
	@.venv/bin/python scripts/demo_swarm.py

test:
	@scripts/bootstrap test
	@scripts/check

check:
	@scripts/bootstrap dev
	@scripts/check tests/test_*.py tests/*/unit

clients:
	@scripts/bootstrap agents
	@.venv/bin/pytest -m clients tests/clients tests/together

torture:
	@scripts/bootstrap torture
	@scripts/frameworks
	@.venv/bin/pytest -m "torture or hypothesis and not clients" --hypothesis-profile thorough --timeout 1200

matrix:
	@scripts/bootstrap dev
	@.venv/bin/python scripts/matrix.py

bench:
	@scripts/bootstrap dev
	@.venv/bin/python -m benchmarks

docs:
	@scripts/bootstrap dev
	@.venv/bin/python scripts/reference.py
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet --strict

picture:
	@scripts/bootstrap test
	@.venv/bin/python scripts/picture.py
	@.venv/bin/python -m scripts.console_pictures

bundle:
	@scripts/bootstrap dev
	@.venv/bin/python scripts/bundle.py

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
