"""Running a policy online: ask, tell, late and lost rewards, save and restore, estimates."""
