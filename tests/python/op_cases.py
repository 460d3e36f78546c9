"""The op table: every public function beside its NumPy formula. A new function is a new row in one of the parts.

Main entry: ROWS. The form of a row is in op_table.py, formulas of more than a line are in op_reference.py.
"""

import op_cases_elementwise
import op_cases_loss
import op_cases_network
import op_cases_shape

ROWS = [*op_cases_elementwise.ROWS, *op_cases_shape.ROWS, *op_cases_network.ROWS, *op_cases_loss.ROWS]
