"""Operations (17 to 20): what it costs, emits and risks."""
