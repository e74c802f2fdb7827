"""Operations on a broker for threads, by what they are about; generated."""
