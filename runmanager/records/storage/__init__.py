"""Run folders: claiming one, writing it as its one owner, and reading runs and whole sweeps."""
