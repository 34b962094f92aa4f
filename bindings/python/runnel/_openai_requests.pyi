# Nothing of this module is public.
