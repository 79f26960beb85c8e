"""The write path: experiments in memory, jobs that change them, and one writer that commits."""
