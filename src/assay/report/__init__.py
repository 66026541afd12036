"""What people read: terminal tables, CARD.md and plots."""
