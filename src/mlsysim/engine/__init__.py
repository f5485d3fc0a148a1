"""Room 4, composition: scenarios, pipelines of resolvers, explanations."""
