"""The paper's three experiments, and today's libraries on the same networks."""
