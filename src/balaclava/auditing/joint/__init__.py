"""Audits of scope "joint": neighbours differ in one participant's features and reward."""
