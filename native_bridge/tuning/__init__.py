"""Running a real engine at one setting after another, to find its fastest."""
